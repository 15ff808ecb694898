# SPDX-License-Identifier: GPL-2.0-only
"""Faults such as people make: how they change a line of C, and a random sample of such lines."""
import re

# ---- kinds of faults: each returns the changed line, or None if it does not apply ---------------------------

def drop_condition(line):
    """Forgets the second of two conditions."""
    if not re.match(r'\s+(\} else )?(if|while) ', line):
        return None
    found = re.search(r' (&&|\|\|) [^&|()]*(\([^()]*\)[^&|()]*)*(?=\)( \{)?$)', line)
    return line[:found.start()] + line[found.end():] if found else None


def negate(line):
    found = re.match(r'(\s*if \()(!?)(\w[\w>.-]*)(\)( \{)?)$', line)
    return found and f'{found[1]}{"" if found[2] else "!"}{found[3]}{found[4]}'


def move_boundary(line):
    found = re.search(r' (<=|>=|<|>) ', line)
    if not found or '#' in line or '->' in found[0]:
        return None
    other = {'<': '<=', '<=': '<', '>': '>=', '>=': '>'}[found[1]]
    return f'{line[:found.start()]} {other} {line[found.end():]}'


def swallow_error(line):
    """Makes the function return success."""
    found = re.match(r'(\s*)return (-E\w+|-errno|-1|zns_fail\(.*\));$', line)
    return found and 'ENOMEM' not in line and f'{found[1]}return 0;'


def forget_call(line):
    """Leaves out a call whose result is not used, such as a flush or a mark. Calls that only free memory are kept."""
    found = re.match(r'(\s+)(?!return|else|goto|free|close|pr_|zns_log|xfree|va_)\w+(?<!_free)(?<!_fini)(?<!_close)\(.*\);$', line)
    return found and f'{found[1]};'


def off_by_one(line):
    found = re.search(r' [+-] 1\b', line)
    return line[:found.start()] + line[found.end():] if found and line.endswith(';') else None


def forget_assignment(line):
    found = re.match(r'(\s+)[\w>.\[\]-]+ (=|\+=|-=|\|=|&=) [^{}]*;$', line)
    return found and f'{found[1]};'


KINDS = (drop_condition, negate, move_boundary, swallow_error, forget_call, off_by_one, forget_assignment)


def swapped(lines, i):
    """Exchanges two consecutive statements of which the second uses what the first sets."""
    simple = re.compile(r'\s+\w[^{}]*;$')
    one, two = lines[i], lines[i + 1] if i + 1 < len(lines) else ''
    declaration = re.compile(r'\s+(struct|const|static|unsigned|int|char|bool|size_t|ssize_t|u?int\d+_t|pid_t|off_t|return|break|goto|case)\b')
    if one == two or not simple.match(one) or not simple.match(two) or declaration.match(one) or declaration.match(two):
        return None
    about = re.match(r'\s+(?:\w+\(&?)?(\w+(?:(?:->|\.)\w+)*)', one)[1]
    if len(one) - len(one.lstrip()) != len(two) - len(two.lstrip()) or not re.search(rf'(?<![\w>.]){re.escape(about)}\b', two):
        return None
    return f'{two}\n{one}'


def faults_of(repo, path):
    """All faults of a file: [{file, line, old, new, what}]"""
    lines, found, inside = (repo / path).read_text().splitlines(), [], False
    for i, line in enumerate(lines):
        inside = inside or '/*' in line
        if not inside and line.startswith('\t'):
            for kind in KINDS:
                new = kind(line)
                if new and new != line:
                    found.append({'file': str(path), 'line': i + 1, 'old': line, 'new': new, 'what': kind.__name__})
            new = swapped(lines, i)
            if new:
                found.append({'file': str(path), 'line': i + 1, 'old': f'{line}\n{lines[i + 1]}', 'new': new, 'what': 'swap'})
        if '*/' in line:
            inside = False
    return found


def drawn(repo, files, rng):
    """An endless sequence of faults: first a file is chosen by its size, then a kind of fault that it has, then a
    place, so that rare kinds are chosen, too."""
    every = {f: faults_of(repo, f) for f in files}
    weights = [len(every[f]) for f in files]
    seen = set()
    while len(seen) < sum(weights):
        faults = every[rng.choices(files, weights)[0]]
        kind = rng.choice(sorted({f['what'] for f in faults}))
        fault = rng.choice([f for f in faults if f['what'] == kind])
        if key(fault) not in seen:
            seen.add(key(fault))
            yield fault


def key(fault):
    return f'{fault["file"]}:{fault.get("line", 0)}: {fault["old"]} -> {fault["new"]}'
