# SPDX-License-Identifier: GPL-2.0-only
"""Plots as SVG: lines over time, and groups of bars. Nothing but text is written, so no library is needed."""
from html import escape

COLOURS = ['#1f77b4', '#ff7f0e', '#2ca02c', '#d62728', '#9467bd', '#8c564b', '#17becf', '#7f7f7f']
WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 720, 320, 64, 46, 34, 150


def ticks(top):
    if top <= 0:        # logarithms of small values
        return [0.0]
    step = 1.0
    while top / step > 6:
        step *= 2.5 if str(step)[0] == '2' else 2
    while top / step < 3:
        step /= 2
    return [i * step for i in range(int(top / step + 1e-9) + 1)]


class Canvas:
    def __init__(self, title, x_label, y_label, x_max, y_max, x_min=0.0):
        self.x_min, self.x_max, self.y_max = x_min, x_max, y_max or 1
        self.items = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
                      f'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>']
        self.text(WIDTH / 2 - RIGHT / 2 + LEFT / 2, 18, title, 'middle', 'font-weight="bold"')
        self.text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, x_label, 'middle')
        self.items.append(f'<text transform="translate(14,{HEIGHT / 2}) rotate(-90)" text-anchor="middle">'
                          f'{escape(y_label)}</text>')
        for v in ticks(self.y_max):
            y = self.y(v)
            self.items.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
            self.text(LEFT - 6, y + 4, f'{v:g}', 'end')

    def x(self, v):
        return LEFT + (v - self.x_min) / ((self.x_max - self.x_min) or 1) * (WIDTH - LEFT - RIGHT)

    def y(self, v):
        return HEIGHT - BOTTOM - v / self.y_max * (HEIGHT - BOTTOM - TOP)

    def text(self, x, y, text, anchor='start', more=''):
        self.items.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {more}>{escape(text)}</text>')

    def legend(self, names):
        for i, name in enumerate(names):
            y = TOP + 8 + i * 18
            self.items.append(f'<rect x="{WIDTH - RIGHT + 10}" y="{y - 9}" width="12" height="10" '
                              f'fill="{COLOURS[i % len(COLOURS)]}"/>')
            self.text(WIDTH - RIGHT + 27, y, name)

    def write(self, path):
        path.write_text('\n'.join(self.items) + '\n</svg>\n')


def lines(path, title, x_label, y_label, series, y_max=None):
    """series: {name: [(x, y), …]}"""
    points = [p for s in series.values() for p in s]
    c = Canvas(title, x_label, y_label, max(p[0] for p in points), y_max or 1.08 * max(p[1] for p in points))
    for v in ticks(c.x_max):
        c.text(c.x(v), HEIGHT - BOTTOM + 16, f'{v:g}', 'middle')
    for i, s in enumerate(series.values()):
        line = ' '.join(f'{c.x(x):.1f},{c.y(min(y, c.y_max)):.1f}' for x, y in s)
        c.items.append(f'<polyline points="{line}" fill="none" stroke="{COLOURS[i % len(COLOURS)]}" '
                       'stroke-width="1.6"/>')
    c.legend(list(series))
    c.write(path)


def bars(path, title, y_label, groups, series, y_max=None):
    """groups: their names; series: {name: [a value for each group]}"""
    c = Canvas(title, '', y_label, len(groups), y_max or 1.08 * max(v for s in series.values() for v in s))
    width = 0.8 / len(series)
    for g, name in enumerate(groups):
        c.text(c.x(g + 0.5), HEIGHT - BOTTOM + 16, name, 'middle')
        for i, s in enumerate(series.values()):
            x, y = c.x(g + 0.1 + i * width), c.y(min(s[g], c.y_max))
            c.items.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{c.x(width) - c.x(0):.1f}" '
                           f'height="{HEIGHT - BOTTOM - y:.1f}" fill="{COLOURS[i % len(COLOURS)]}"/>')
    c.legend(list(series))
    c.write(path)
