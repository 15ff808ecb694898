# SPDX-License-Identifier: GPL-2.0-only
"""The page about a device."""
import re
import subprocess

from case_terminal import clean
from forge import CHECKPOINT, double, having, log, zigzag
from obs import HOSTILE, checked, escaped, forged, report, scene_metrics
from page import Page
from tools import Media, stop_broker
from ztscene import FAST, TINY, case_of, expect, run_ctl

CASES = {}
case = case_of(CASES)


@case
def report_figures(scene):
    """report: its tables agree with ls, zones, groups and metrics; pictures have as many cells; the JSON has the same figures."""
    scene = scene(FAST, size=24)
    empty = report(scene)
    expect('containers of an empty device', 'There is no checkpoint on this device.' in empty.texts, True)
    one = scene.good_dump(extra=['--leave-running'])
    images = scene.dir / 'images-2'
    images.mkdir()
    two = scene.good_dump(images=images, extra=['--zns-container', 'a <b>&amp;\'s'])
    scene.good_restore(images=images)
    stop_broker(scene)
    page = report(scene)
    zones = scene.device.json('zones')['zones']
    rows = page.table('zone', 'group', 'state')
    expect('zones', [(int(r['zone']), int(r['group']), r['state'], r['written'], r['capacity'], r['live'], r['owner'] or None) for r in rows],
           [(z['index'], z['group'], z['state'], z['wp'], z['capacity'], z['live'], z['owner']) for z in zones])
    checkpoints = scene.device.checkpoints()
    rows = page.table('id', 'container', 'created')
    expect('checkpoints', [(r['id'], r['container'], r['created'], r['bytes'], int(r['groups'])) for r in rows],
           [(c['id'], c['container'], c['created'], c['bytes'], len(c['groups'])) for c in checkpoints])
    expect('ids', [r['id'] for r in rows], [one, two])
    rows = page.table('container', 'checkpoints', 'bytes')
    expect('containers', {r['container']: (int(r['checkpoints']), r['bytes']) for r in rows},
           {c['container']: (1, c['bytes']) for c in checkpoints})
    data = scene.device.json('report', scene.device.spec)
    rows = page.table('group', 'channel', 'zones')
    for row, group in zip(rows, data['groups'], strict=True):
        own = [z for z in zones if z['group'] == group['group'] and z['owner'] not in ('(metadata)', '(conventional)')]
        expect(f'group {group["group"]}', (row['live'], row['filled'], int(row['zones']), int(row['resets']), row['written in all']),
               (sum(z['live'] for z in own), sum(z['wp'] for z in own), len(own), group['resets_total'], group['written_bytes_total']))
    card = page.texts[page.texts.index('Bandwidth to promise') + 1]
    expect('the bandwidth to promise', re.fullmatch(r'\d+ MiB/s', card) is not None, True)
    cells = [t for t in page.texts if re.match(r'zone \d+: ', t)]
    expect('cells', len(cells), len(zones))
    rows = page.table('until', 'seconds', 'dumps')
    expect('samples', [(r['until'], int(r['dumps ended']), int(r['restores ended'])) for r in rows],
           [(s['end'], s['dumps'], s['restores']) for s in data['samples']])
    expect('dumps in samples', (sum(s['dumps'] for s in data['samples']), data['counters']['dumps']), (2, 2))
    expect('bytes in samples', sum(s['dump_bytes'] for s in data['samples']), data['counters']['dump_bytes'])
    expect('pictures', {'zones-t', 'containers-t', 'groups-t', 'rates-t'} <= set(page.ids), True)
    piped = subprocess.run([scene.cfg.znsctl, 'report', scene.device.spec], env=scene.device.env, capture_output=True, text=True, check=True)
    expect('on standard output', Page(piped.stdout).table('id', 'container')[0]['id'], one)
    run_ctl(scene, 1, 'report', scene.device.spec, '--output', str(scene.dir / 'nowhere' / 'x.html'))
    run_ctl(scene, 1, 'report', f'emu:{scene.dir}/nothing', '--output', str(scene.dir / 'x.html'))


@case
def report_hostile(scene):
    """report: names that an attacker wrote are text, and nothing else: the page has the same elements as with a plain one."""
    scene = scene(TINY, size=1)
    scene.good_dump()
    media = Media(scene)
    stop_broker(scene)
    good = media.copy_of_metadata()
    forged(scene, media, b'plain')
    plain = report(scene).tags
    stop_broker(scene)
    for what, evil in HOSTILE.items():
        media.put_back(good)
        forged(scene, media, evil)
        page = report(scene)
        expect(f'elements with {what}', page.tags, plain)
        for text in page.texts:
            clean(f'report, {what}', text)
        row, = page.table('container', 'checkpoints')
        clean(f'report, {what}', row['container'])
        if what in ('quote', 'backslash', 'label', 'markup', 'style end', 'colour', 'new line', 'huge'):
            expect(what, row['container'], escaped(evil.decode()))
            expect(f'image of {what}', row['image'], escaped(evil.decode()[:100]))
        stop_broker(scene)
    for created in (0, 1, 10**18, 4 * 10**18):       # the store refuses others, and rates that are no numbers
        for achieved in (1e308, 1e10, 0.0, 100.0):
            media.put_back(good)
            record = [f for f in log(media) if f.kind == CHECKPOINT][-1]
            record.put(having(having(record.fields, 3, zigzag(created)), 10, double(achieved)))
            page = report(scene)
            row, = page.table('id', 'container')
            drawn = 'circle' in page.tags
            expect(f'created {created}, {achieved} MiB/s', drawn, achieved in (0.0, 100.0))
            checked(scene_metrics(scene))
            stop_broker(scene)
