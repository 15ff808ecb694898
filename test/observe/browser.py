#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
browser: the page of `znsctl report` in a real browser (Debian's chromium): light, dark, on a phone and on a wide screen.
Pictures of all of them are in build/report/observe-browser, to be looked at.

  browser.py list | run NAME... | run -a
"""
import sys
import time
from pathlib import Path

TEST = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TEST / part) for part in ('observe', 'hostile', 'docker', 'zonetests')]

from chromium import Chromium                                           # noqa: E402
from forge import CHECKPOINT, double, having, log, zigzag               # noqa: E402
from obs import HOSTILE, forged, report                                 # noqa: E402
from tools import Media, stop_broker                                    # noqa: E402
from ztlib import Failed                                                # noqa: E402
from ztscene import DIES, FAST, case_of, suite_main                     # noqa: E402

CASES = {}
case = case_of(CASES)

MANY = ['--channels', '8', '--ways', '16', '--zones', '2560', '--zone-size', '1M', '--max-open', '64', '--max-active', '64', '--timing', 'off']
WIDTHS = (400, 800, 1280)
PICTURES = TEST.parent / 'build/report/observe-browser'

# What a reader would stumble over; "" if nothing. All tables are unfolded.
LOOK = r"""(() => {
  document.querySelectorAll('details').forEach(d => d.open = true);
  const bad = [], name = e => JSON.stringify(e.textContent.slice(0, 40));
  if (document.documentElement.scrollWidth > innerWidth)
    bad.push(`the page is ${document.documentElement.scrollWidth} wide, the window ${innerWidth}`);
  const inside = (a, b) => a.left >= b.left - 1 && a.right <= b.right + 1 && a.top >= b.top - 1 && a.bottom <= b.bottom + 1;
  for (const svg of document.querySelectorAll('main svg')) {
    const frame = svg.getBoundingClientRect(), id = svg.getAttribute('aria-labelledby') || 'a mark';
    const texts = [...svg.querySelectorAll('text')].map(e => ({e, r: e.getBoundingClientRect()}));
    texts.forEach(({e, r}, i) => {
      if (!inside(r, frame)) bad.push(`${name(e)} is cut by the edge of ${id}`);
      if (r.height < 8.5 && !e.matches('.mark') && !svg.hasAttribute('aria-hidden')) bad.push(`${name(e)} in ${id} is ${r.height.toFixed(1)} px high`);
      for (const o of texts.slice(i + 1)) {
        const w = Math.min(r.right, o.r.right) - Math.max(r.left, o.r.left), h = Math.min(r.bottom, o.r.bottom) - Math.max(r.top, o.r.top);
        if (w > 1 && h > 4) bad.push(`${name(e)} and ${name(o.e)} in ${id} overlap`);
      }
    });
  }
  for (const e of document.querySelectorAll('td time'))
    if (e.getClientRects().length > 1) bad.push(`${name(e)} is broken`);
  for (const e of document.querySelectorAll('h1, h2, p, li, dt, dd, summary, footer')) {
    if (e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).display != 'inline') bad.push(`${name(e)} is cut`);
  }
  const parts = c => c.match(/[\d.]+/g).map(Number);
  const light = c => parts(c).slice(0, 3).map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
                             .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const under = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor; if (parts(c)[3] !== 0) return c; } return 'rgb(255,255,255)'; };
  const told = new Set();
  for (const e of document.querySelectorAll('h1, h2, p, li, dt, dd, small, summary, footer, caption, th, td, .axis, .over')) {
    if (e.matches('svg *')) continue;
    const a = light(getComputedStyle(e).color), b = light(under(e)), contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < 4.5 && !told.has(e.tagName)) { told.add(e.tagName); bad.push(`<${e.tagName}> ${name(e)} has a contrast of ${contrast.toFixed(1)}`); }
  }
  return bad.slice(0, 12).join('; ') + (bad.length > 12 ? `; ${bad.length - 12} more` : '');
})()"""


def look(scene, what):
    """The report as it is now, at each width, light and dark: pictures, and nothing to stumble over."""
    report(scene)
    page, wrong, grounds = scene.dir / 'report.html', [], set()
    PICTURES.mkdir(parents=True, exist_ok=True)
    with Chromium() as browser:
        for width in WIDTHS:
            for scheme in ('light', 'dark'):
                browser.show(page, width, scheme)
                browser.picture(PICTURES / f'{what}-{width}-{scheme}.png')
                grounds.add((scheme, browser.value('getComputedStyle(document.body).backgroundColor')))
                found = browser.value(LOOK)
                browser.picture(PICTURES / f'{what}-{width}-{scheme}-unfolded.png')
                asked = [u for u in browser.asked if not u.startswith(f'file://{page}')]
                wrong += [f'{width} px, {scheme}: {found}'] * bool(found) + [f'it loads {u}' for u in asked] + browser.said
        if browser.value('document.scripts.length + document.images.length') or browser.value('window.owned'):
            wrong.append('the page has a script or an image')
    if len({colour for _, colour in grounds}) != 2 or len(grounds) != 2:
        wrong.append(f'light and dark have these grounds: {sorted(grounds)}')
    if wrong:
        raise Failed(f'{what}: ' + '\n'.join(wrong))


@case
def page_busy(scene):
    """A device with checkpoints of eleven containers, some with several, one with a name that is long."""
    scene = scene([*DIES, '--zones', '96', '--zone-size', '16M', '--timing', 'off'], size=24)
    look(scene, 'empty')
    for nr, name in enumerate(['shop', 'shop', 'shop', 'web', 'mail', 'a-container-of-a-pod-with-quite-a-long-name_default_0123456789abcdef', 'db',
                               'db', 'ci-1', 'ci-2', 'ci-3', 'ci-4', 'ci-5', 'ci-6']):
        images = scene.dir / f'images-{nr}'
        images.mkdir()
        scene.good_dump(images=images, extra=['--leave-running', '--zns-container', name, '--zns-qos', str(100 + 50 * (nr % 4))])
    media = Media(scene)
    stop_broker(scene)      # the broker stores what was moved
    for nr, record in enumerate(f for f in log(media) if f.kind == CHECKPOINT):       # dumps as long as those that get a figure
        when = int(time.time() - 86400 * (20 - nr)) * 10**9
        record.put(having(having(record.fields, 3, zigzag(when)), 10, double(90.0 + 60 * (nr % 4))))
    look(scene, 'busy')


@case
def page_hostile(scene):
    """Names that an attacker wrote: still a page that can be read."""
    scene = scene(FAST, size=1)
    for nr, evil in enumerate([b'W' * 100, '\u754c'.encode() * 60, *HOSTILE.values()]):      # as wide as characters can be
        images = scene.dir / f'images-{nr}'
        images.mkdir()
        scene.good_dump(images=images, extra=['--leave-running'])
        media = Media(scene)
        stop_broker(scene)
        forged(scene, media, evil)
    look(scene, 'hostile')


@case
def page_large(scene):
    """2,560 zones on 128 dies."""
    scene = scene(MANY, size=8)
    for nr in range(3):
        images = scene.dir / f'images-{nr}'
        images.mkdir()
        scene.good_dump(images=images, extra=['--leave-running', '--zns-container', f'c{nr}', '--zns-qos', '500'])
    look(scene, 'large')


if __name__ == '__main__':
    sys.exit(suite_main(__doc__, 'browser', CASES))
