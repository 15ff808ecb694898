# SPDX-License-Identifier: GPL-2.0-only
"""The list of areas (VMAs) of a process tree: a restore gives back the one that the dump found."""
import os
import re
from pathlib import Path

# The kernel chooses where these are, and their pages do not belong to the program.
KERNELS = {'[vdso]', '[vvar]', '[vvar_vclock]', '[vsyscall]'}
# ac: criu, without zones too, maps files writable before it takes that right away, so the kernel accounts for them from then on.
# sd: written since somebody asked; no restore keeps it. um, uw, ui: registered with a userfaultfd, until all memory is there (a lazy
# restore), or for good (a pager); what these must be has cases of its own.
NOT_KEPT = {'ac', 'sd', 'um', 'uw', 'ui'}
# Programs of the tests, which map nothing any more once they are ready; churn does. Redis and the like allocate when they want.
SETTLED = {p.stem for p in Path(__file__).parent.glob('*.c')} - {'churn'}
_dumped = {}     # areas of trees, by the handle that their dump left, or by the image directory


def _area(line, flags):
    words = line.split(maxsplit=5)
    name = re.sub('^/memfd:/', '/', words[5]) if len(words) == 6 else ''
    start, end = (int(n, 16) for n in words[0].split('-'))
    return start, end, words[1], name, ' '.join(sorted(set(flags) - NOT_KEPT)), int(words[2], 16)


def of_process(pid):
    """[(start, end, permissions, name, flags, offset)], in order."""
    found, line = [], None
    for text in Path(f'/proc/{pid}/smaps').read_text(errors='replace').splitlines():
        if re.match('[0-9a-f]+-[0-9a-f]+ ', text):
            line = text
        elif text.startswith('VmFlags:'):
            area = _area(line, text.split()[1:])
            if area[3] not in KERNELS:
                found.append(area)
    return found


def joined(areas):
    """
    Neighbours that differ in nothing become one. A program has such where "ac" divides them, or where it wrote to both before
    they met. Stock criu maps them as one too.
    """
    found = []
    for a in areas:
        last = found[-1] if found else None
        if last and a[0] == last[1] and a[2:5] == last[2:5] and a[5] - last[5] in (0, last[1] - last[0]):
            found[-1] = (last[0], a[1], *last[2:])
        else:
            found.append(a)
    return found


def of_tree(pids, stopped=False):
    """{pid in its namespace: its areas}; of all programs if they are stopped, else of those that have settled."""
    found = {}
    for pid in pids:
        try:
            if not stopped and Path(os.readlink(f'/proc/{pid}/exe')).name not in SETTLED:
                continue
            inner = int(re.search(r'^NSpid:.*?(\d+)$', Path(f'/proc/{pid}/status').read_text(), re.M).group(1))
            found[inner] = of_process(pid)
        except (FileNotFoundError, ProcessLookupError):
            continue    # the process has just exited
    return found


def _text(area):
    return f'{area[0]:x}-{area[1]:x} {area[2]} {area[3]} ({area[4]})'


def differences(before, after):
    """For processes that are in both lists: their differences in words; '' if there are none."""
    for pid in sorted(before.keys() & after.keys()):
        had, has, one = before[pid], after[pid], joined(before[pid])
        lost = sorted(set(one) - set(joined(has)))
        starts, ends = {a[0] for a in had}, {a[1] for a in had}
        # The kernel joins some of several neighbours that differ in nothing: it begins and ends where one of them did.
        new = sorted(a for a in set(has) - set(had) - set(one) if a[0] not in starts or a[1] not in ends)
        if lost or new:
            return (f'process {pid} had {len(had)} areas and has {len(has)}: {len(lost)} it had: {"; ".join(map(_text, lost[:4]))}; '
                    f'{len(new)} it has: {"; ".join(map(_text, new[:4]))}')
    return ''


def _option(args, name):
    return args[args.index(name) + 1] if name in args else None


def _key(args):
    images = Path(_option(args, '-D'))
    try:
        # a case may have put a FIFO or a link there
        with open(os.open(images / 'zns-handle.img', os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), 'rb') as handle:
            return handle.read() or str(images.resolve())
    except OSError:
        return str(images.resolve())


def before_dump(args, tree):
    """What keep() wants to know of a criu call that is about to be made; @tree: gives the PIDs of a tree."""
    return of_tree(tree(int(_option(args, '-t')))) if args[0] == 'dump' else {}


def keep(args, found):
    """The dump has succeeded."""
    _dumped[_key(args)] = found


def after_restore(args, tree):
    """The restore has succeeded: (areas at the dump, areas now), or None if the dump is not known."""
    pidfile = _option(args, '--pidfile')
    before = _dumped.get(_key(args)) if args[0] == 'restore' and pidfile else None
    return before and (before, of_tree(tree(int(Path(pidfile).read_text()))))
