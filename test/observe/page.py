# SPDX-License-Identifier: GPL-2.0-only
"""A page of `znsctl report`, read as strictly as can be."""
import re
import xml.etree.ElementTree as xml
from html.parser import HTMLParser

from ztlib import Failed
from ztscene import expect

VOID = {'meta', 'br', 'line', 'rect', 'circle', 'path'}
# These elements have no others in them, and no text of their own.
INSIDE = {'table': {'caption', 'thead', 'tbody', 'tr'}, 'thead': {'tr'}, 'tbody': {'tr'}, 'tr': {'td', 'th'}}


class Page(HTMLParser):
    """A page whose elements are all closed: its tables by id or caption, texts, ids; nothing that could load or run anything."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.ids, self.references, self.tables, self.texts = [], [], [], [], [], []
        self.row = self.cell = None
        self.feed(text)
        self.close()
        expect('elements that are not closed', self.open, [])
        expect('ids that are there twice', [i for i in self.ids if self.ids.count(i) > 1], [])
        expect('references to nothing', [r for r in self.references if r not in self.ids], [])
        for svg in re.findall('<svg.*?</svg>', text, re.S):
            xml.fromstring(svg)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        bad = [a for a in attrs if a.startswith('on') or a in ('src', 'href', 'style', 'srcset', 'action')]
        if bad or tag in ('script', 'img', 'link', 'iframe', 'object', 'a', 'base', 'form'):
            raise Failed(f'<{tag} {attrs}>')
        if self.open and tag not in INSIDE.get(self.open[-1], {tag}):
            raise Failed(f'<{tag}> in <{self.open[-1]}>')
        self.tags.append(tag)
        self.ids += [attrs['id']] if 'id' in attrs else []
        self.references += attrs.get('aria-labelledby', '').split()
        if tag not in VOID:
            self.open.append(tag)
        if tag == 'svg' and attrs.get('role') != 'img' and 'aria-hidden' not in attrs:
            raise Failed(f'a picture without a title: {attrs}')
        if tag == 'table':
            self.tables.append([])
        if tag == 'tr':
            self.tables[-1].append([])
        if tag in ('td', 'th'):
            self.tables[-1][-1].append('')
        if tag == 'data':
            self.tables[-1][-1][-1] = int(attrs['value'])
        if tag == 'th' and attrs.get('scope') != 'col':
            raise Failed('a heading of no column')

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            raise Failed(f'</{tag}> closes another element')

    def handle_comment(self, data):
        raise Failed(f'a comment: {data}')

    def handle_data(self, data):
        if self.open and self.open[-1] in INSIDE and data.strip():
            raise Failed(f'text in <{self.open[-1]}>: {data}')
        if self.open and self.open[-1] in ('td', 'th', 'time') and 'table' in self.open:
            self.tables[-1][-1][-1] += data
        elif 'style' not in self.open:
            self.texts.append(data)

    def table(self, *headings):
        """The rows of the table with these first headings, as dicts."""
        for head, *rows in self.tables:
            if tuple(head[:len(headings)]) == headings:
                return [dict(zip(head, r)) for r in rows]
        raise Failed(f'no table with {headings}')
