# SPDX-License-Identifier: GPL-2.0-only
"""
Many faults in one build, each behind a switch: `if (a < b)` becomes `if (ZNS_FAULT(7) ? (a <= b) : (a < b))`. Each
program maps a file when it starts. It has the number of the fault that is on, and a program notes in it which switches
it has passed.

A fault that cannot be put behind a switch (in a macro or a constant) needs a build of its own.
"""
import re
import struct

FIRST = 64                      # where the bytes of the switches begin; before them is the number of the fault that is on
SIZE = 1 << 14
HEADER = r'''/* Made by scripts/mutate. Plain system calls, since tests wrap those of libc. */
#ifndef ZNS_FAULT
static inline long zns_fault_call(long nr, long a, long b, long c, long d, long e, long f)
{
	register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
	long ret;

	__asm__ volatile("syscall" : "=a"(ret) : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
	return ret;
}
extern unsigned char *zns_fault_map;
__attribute__((weak)) unsigned char *zns_fault_map;
extern unsigned char zns_fault_none[];
__attribute__((weak)) unsigned char zns_fault_none[@SIZE@];
void zns_fault_begin(void);
__attribute__((weak, constructor(101))) void zns_fault_begin(void)
{
	long fd, map;

	if (zns_fault_map)
		return;
	zns_fault_map = zns_fault_none;
	fd = zns_fault_call(2, (long)"@FILE@", 02 | 02000000, 0, 0, 0, 0);
	if (fd < 0)
		return;
	map = zns_fault_call(9, 0, @SIZE@, 3, 1, fd, 0);
	zns_fault_call(3, fd, 0, 0, 0, 0, 0);
	if (map > 0)
		zns_fault_map = (unsigned char *)map;
}
static inline int zns_fault_is(int n)
{
	if (!zns_fault_map)
		zns_fault_begin();
	zns_fault_map[@FIRST@ + n] = 1;
	return *(int *)zns_fault_map == n;
}
#define ZNS_FAULT(n) zns_fault_is(n)
#endif
'''


def header(state):
    return HEADER.replace('@FILE@', str(state)).replace('@SIZE@', str(SIZE)).replace('@FIRST@', str(FIRST))


class State:
    """The file that the programs map."""

    def __init__(self, path):
        self.path = path
        path.write_bytes(bytes(SIZE))
        path.chmod(0o666)

    def switch_on(self, n):
        """Enables fault n alone, or no fault (0), and clears the list of faults that were reached."""
        with self.path.open('r+b') as f:
            f.write(struct.pack('i', n).ljust(SIZE, b'\0'))

    def came_by(self):
        return {n for n, b in enumerate(self.path.read_bytes()[FIRST:]) if b}


# ---- statements --------------------------------------------------------------------------------------------

def masked(text):
    """Strings, characters and comments become blanks of their length."""
    return re.sub(r'/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', lambda m: re.sub(r'[^\n]', ' ', m[0]), text, flags=re.S)


def closing(text, at):
    """The position where the parenthesis that opens at `at` closes, or -1."""
    depth = 0
    for i in range(at, len(text)):
        depth += {'(': 1, '[': 1, ')': -1, ']': -1}.get(text[i], 0)
        if not depth:
            return i
    return -1


def is_end(line):
    """Does a statement end on this line?"""
    line = masked(line).strip()
    return not line or line[-1] in ';{}:' or line[0] == '#' or line.endswith('else') or line == 'do' or line.endswith('*/')


HEAD = re.compile(r'\s*(?:\} )?(?:else )?(?:if|while|for) (?=\()')


def span(lines, i, n):
    """The lines [from, to) of the statement, or statements, that lines i to i + n belong to; None if that is not clear."""
    start = i
    while start > 0 and not is_end(lines[start - 1]):
        start -= 1
    while True:
        text = masked('\n'.join(lines[start:i + n + 30]))
        head = HEAD.match(text)
        if not head:
            break
        close = closing(text, head.end())
        if close < 0:
            return None
        after = start + text[:close].count('\n') + 1
        if after > i:
            return (start, after) if after >= i + n else None
        start = after
    for end in range(i + n, min(len(lines), i + n + 30) + 1):
        text = masked('\n'.join(lines[start:end]))
        if text.count('(') == text.count(')') and text.count('{') == text.count('}') and text.rstrip().endswith(';'):
            return start, end
    return None


# ---- a statement with switches -----------------------------------------------------------------------------

DECLARES = re.compile(r'(\s*(?:const |unsigned |struct |enum |cleanup_\w+ )*\w+(?: \**|\** )\w+(?:\[\w*\])? = )(.*)(;\s*)$', re.S)
NO_TYPE = ('return', 'goto', 'else', 'case')


def ternary(old, news):
    return ''.join(f'ZNS_FAULT({n}) ? ({new}) : ' for n, new in news) + f'({old})'


def parts_of(text):
    """(before, expression, behind) of a statement's head. The expression is its condition, of which only the truth counts."""
    mask = masked(text)
    head = HEAD.match(mask)
    close = closing(mask, head.end())
    begin, end = head.end() + 1, close
    if re.search(r'\bfor $', mask[:head.end()]):
        semicolons = [m.start() for m in re.finditer(';', mask) if begin < m.start() < close]
        if len(semicolons) != 2:
            return None
        begin, end = semicolons[0] + 1, semicolons[1]
    return text[:begin], text[begin:end], text[end:]


def one_each(split, old, news):
    """A switch between expressions; the texts are the same before and behind them."""
    whole = split(old)
    others = [(n, split(new)) for n, new in news]
    if not whole or any(not p or (p[0], p[2]) != (whole[0], whole[2]) for _, p in others) or '{' in whole[1]:
        return None
    return whole[0] + ternary(whole[1], [(n, p[1]) for n, p in others]) + whole[2]


def declared(text):
    found = DECLARES.match(text)
    return found and found[1].split()[0] not in NO_TYPE and not declares_more(found[2]) and found.groups()


def declares_more(value):
    """Does another declaration follow the value, after a comma?"""
    depth = 0
    for c in masked(value):
        depth += {'(': 1, '[': 1, '{': 1, ')': -1, ']': -1, '}': -1}.get(c, 0)
        if c == ',' and not depth:
            return True
    return False


def switched(old, news):
    """The text of a statement with faults [(number, text)] behind switches, or None."""
    if '\\\n' in old or old.rstrip().endswith('\\') or re.match(r'\s*(case\b|default:|\w+:|static\b)', old):
        return None
    if HEAD.match(masked(old)):
        return one_each(parts_of, old, news)
    if declared(old):
        return one_each(declared, old, news)
    if any(re.match(r'\s*(?!return\b|goto\b)\w+ +\**\w', masked(line)) for line in old.split('\n')):
        return None     # a declaration, whose scope must not end with a new block
    tail = ' else '.join(f'if (ZNS_FAULT({n})) {{\n{new}\n}}' for n, new in news)
    return f'{{ {tail} else {{\n{old}\n}} }}'


def with_switches(text, faults):
    """(text of a file with all faults that can be put behind switches, their numbers): faults is [(number, fault)], with its line."""
    lines = text.split('\n')
    groups = []         # [from, to, [(number, fault)]]; these ranges do not overlap
    for number, fault in faults:
        n = fault['old'].count('\n') + 1
        where = span(lines, fault['line'] - 1, n)
        if not where or not switched('\n'.join(lines[where[0]:where[1]]), [(number, new_text(lines, where, fault))]):
            continue
        group = [*where, [(number, fault)]]
        for other in [g for g in groups if g[0] < group[1] and group[0] < g[1]]:
            group = [min(group[0], other[0]), max(group[1], other[1]), other[2] + group[2]]
            groups.remove(other)
        groups.append(group)
    done = set()
    for start, end, members in sorted(groups, key=lambda g: -g[0]):
        while members:
            new = switched('\n'.join(lines[start:end]), [(n, new_text(lines, (start, end), f)) for n, f in members])
            if new:
                lines[start:end] = [new]
                done |= {n for n, _ in members}
                break
            members.pop()
    return '\n'.join(lines), done


def new_text(lines, where, fault):
    """The lines of a span with the fault in them."""
    at, n = fault['line'] - 1, fault['old'].count('\n') + 1
    return '\n'.join([*lines[where[0]:at], fault['new'], *lines[at + n:where[1]]])
