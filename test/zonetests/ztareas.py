# SPDX-License-Identifier: GPL-2.0-only
"""The list of areas (VMAs) of a process tree: after a restore it must be the same as at the dump."""
import os
import re
from pathlib import Path

# The kernel chooses the addresses of these areas, and their pages do not belong to the program.
KERNELS = {'[vdso]', '[vvar]', '[vvar_vclock]', '[vsyscall]'}
# These flags may differ. ac: criu, also without zones, maps files writable before it takes that right away, so the
# kernel charges for them from then on. sd: written since soft-dirty bits were reset; no restore keeps it. um, uw, ui:
# registered with a userfaultfd, until all memory is there (a lazy restore) or for good (a pager); cases of their own
# check these.
NOT_KEPT = {'ac', 'sd', 'um', 'uw', 'ui'}
# Test programs that map nothing any more once they are ready (churn does map). Redis and the like allocate at any
# time.
SETTLED = {p.stem for p in Path(__file__).parent.glob('*.c')} - {'churn'}
_dumped = {}     # The areas of trees at their dump, by the dump's handle or its image directory.


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
    Joins neighbours that differ in nothing. A program has such areas if "ac" divides them, or if it wrote to both
    before they touched. Stock criu maps them as one, too.
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
    """{pid in its namespace: its areas}: of all processes if they are stopped, else only of programs that do not map any more."""
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
    """The differences of processes that are in both lists, in words; '' if there are none."""
    for pid in sorted(before.keys() & after.keys()):
        had, has, one = before[pid], after[pid], joined(before[pid])
        lost = sorted(set(one) - set(joined(has)))
        starts, ends = {a[0] for a in had}, {a[1] for a in had}
        # The kernel may have joined some of these neighbours: a joined area must begin and end where one of them did.
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
        # a case may have put a FIFO or a link in its place
        with open(os.open(images / 'zns-handle.img', os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), 'rb') as handle:
            return handle.read() or str(images.resolve())
    except OSError:
        return str(images.resolve())


def before_dump(args, tree):
    """The areas that keep() stores, read before a dump; {} for other criu commands. @tree: returns the PIDs of a tree."""
    return of_tree(tree(int(_option(args, '-t')))) if args[0] == 'dump' else {}


def keep(args, found):
    """Stores the areas of a dump that has succeeded."""
    _dumped[_key(args)] = found


def after_restore(args, tree):
    """For a restore that has succeeded: (areas at the dump, areas now). None: the dump is not known."""
    pidfile = _option(args, '--pidfile')
    before = _dumped.get(_key(args)) if args[0] == 'restore' and pidfile else None
    return before and (before, of_tree(tree(int(Path(pidfile).read_text()))))
