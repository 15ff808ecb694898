# SPDX-License-Identifier: GPL-2.0-only
"""Metrics."""
import signal
from pathlib import Path

from case_terminal import clean
from forge import pack
from obs import HOSTILE, escaped, forged, metrics, report, top, total, value
from tools import Media, stop_broker
from ztlib import Failed, wait_until
from ztscene import FAST, TINY, case_of, expect, run_ctl

CASES = {}
case = case_of(CASES)


@case
def figures(scene):
    """metrics: promtool is content; the figures are those of ls, status, zones and groups; counters end in _total."""
    scene = scene(FAST, size=16)
    ident = scene.good_dump()
    found, kinds = metrics(scene)
    for name, kind in kinds.items():
        expect(f'{name} is a counter', kind == 'counter', name.endswith('_total'))
    status, zones = scene.device.status(), scene.device.json('zones')['zones']
    for name, key in (('zns_live_bytes', 'bytes_live'), ('zns_free_bytes', 'bytes_free'), ('zns_wasted_bytes', 'bytes_wasted')):
        expect(name, value(found, name), status[key])
    for state, n in status['zones_by_state'].items():
        expect(state, value(found, 'zns_zones', state=state), n)
    data = [z for z in zones if z['owner'] not in ('(metadata)', '(conventional)')]
    for group in range(8):
        own = [z for z in data if z['group'] == group]
        for name, want in (('zns_group_zones', len(own)), ('zns_group_live_bytes', sum(z['live'] for z in own)),
                           ('zns_group_occupied_bytes', sum(z['wp'] for z in own)),
                           ('zns_group_empty_zones', sum(z['state'] == 'empty' for z in own))):
            expect(f'{name} of group {group}', value(found, name, group=str(group)), want)
    checkpoint, = scene.device.checkpoints()
    labels = {'container': 'errors'}
    expect('bytes', value(found, 'zns_container_last_checkpoint_bytes', **labels), checkpoint['bytes'])
    expect('frozen', value(found, 'zns_container_last_checkpoint_frozen_seconds', **labels), checkpoint['frozen_us'] / 1e6)
    expect('restores', [n for n, *_ in found if 'last_restore' in n], [])
    expect('bandwidth', value(found, 'zns_available_bytes_per_second'), 8 * 100 * (1 << 20))
    scene.good_restore()
    found, _ = metrics(scene)
    restored, = scene.device.status()['restores']
    expect('restored', value(found, 'zns_container_last_restore_bytes', **labels), restored['bytes'])
    expect('of', restored['checkpoint'], ident)


@case
def counters(scene):
    """Dumps, restores and their bytes, failures and refusals, resets: counted, and the next broker counts on."""
    scene = scene(FAST, size=16)
    before, _ = metrics(scene)
    expect('at first', [v for n, _, v in before if n.startswith(('zns_dumps', 'zns_restores')) and v], [])
    ident = scene.good_dump()
    size = scene.device.checkpoints()[0]['bytes']
    scene.good_restore()
    for n, args in enumerate((dict(fault='write-after=3x*'), dict(qos='99999', extra=['--zns-admission', 'reject']))):
        images = scene.dir / f'failed-{n}'
        images.mkdir()
        scene.dump(images=images, **args).must_fail()
    found, _ = metrics(scene)

    def told(found):
        return {what: [value(found, f'zns_{what}_total', result=r) for r in results]
                for what, results in (('dumps', ('committed', 'failed', 'refused')), ('restores', ('done', 'unfinished')))}

    expect('counted', told(found), {'dumps': [1, 1, 1], 'restores': [1, 0]})
    if value(found, 'zns_dump_bytes_total') < size or value(found, 'zns_zone_write_failures_total') < 1:
        raise Failed(f'{size} bytes were dumped, but: {[s for s in found if "_total" in s[0]]}')
    expect('read', value(found, 'zns_restore_bytes_total') >= scene.device.status()['restores'][0]['bytes'] // 2, True)
    written = total(found, 'zns_group_written_bytes_total')
    expect('written', written >= size, True)
    stop_broker(scene)
    again, _ = metrics(scene)
    expect('by the next broker', told(again), told(found))
    expect('since', value(again, 'zns_counters_start_timestamp_seconds'), value(found, 'zns_counters_start_timestamp_seconds'))
    run_ctl(scene, 0, 'rm', ident)
    run_ctl(scene, 0, 'reset', '--all-garbage')
    found, _ = metrics(scene)
    expect('resets', total(found, 'zns_group_zone_resets_total') > 0, True)
    expect('written never shrinks', total(found, 'zns_group_written_bytes_total') >= written, True)


@case
def paging(scene):
    """A memory context in metrics and top: its budget and what it did, promtool content; its bytes in the device's counters."""
    scene = scene(FAST, size=64)
    kernel = scene.device.json('memory', 'status')['kernel']
    expect('/dev/userfaultfd', '/dev/userfaultfd' in [one['what'] for one in kernel['lacks']], not Path('/dev/userfaultfd').exists())
    if kernel['missing']:
        run_ctl(scene, 1, 'memory', 'attach', str(scene.task.pid), '--dram', '16M')
        return
    run_ctl(scene, 0, 'memory', 'attach', str(scene.task.pid), '--dram', '16M')
    try:
        name = scene.device.json('memory', 'status')['contexts'][0]['name']

        def of(what):
            return value(metrics(scene)[0], f'zns_memory_{what}', context=name)

        if not wait_until(lambda: of('evicted_bytes') > 0, 30, 0.2):
            raise Failed('nothing is evicted')
        scene.task.verify(signal.SIGUSR1)
        status = scene.device.json('memory', 'status', name)
        expect('budget', of('budget_bytes'), status['dram'])
        expect('processes', of('processes'), len(status['processes']))
        expect('hibernating', of('hibernating'), 0)
        for what, least in (('faults_total', status['read_units']), ('evictions_total', status['evicted_units'])):
            if of(what) < least or not least:
                raise Failed(f'{what} is {of(what)}, status says {least}')
        if not wait_until(lambda: value(metrics(scene)[0], 'zns_paging_written_bytes_total') > 0, 30, 0.2):
            raise Failed('the device counts no bytes of it')
        seen = top(scene)
        expect('in top', ([c['name'] for c in seen['contexts']], [l['kind'] for l in seen['devices'][0]['leases']]), ([name], ['memory']))
    finally:
        run_ctl(scene, 0, 'memory', 'detach', str(scene.task.pid))
    scene.task.verify(signal.SIGUSR1)
    expect('afterwards', [n for n, labels, _ in metrics(scene)[0] if 'context' in labels], [])


@case
def kept_history(scene):
    """The file that brokers hand on: longer than it may be, of a device with more groups, garbage."""
    scene = scene(TINY, size=1)
    stop_broker(scene)
    at = Path(scene.device.env['ZNS_RUN'], f'{scene.device.info["uuid"]}.history')
    counts = [(n, 7) for n in range(1, 12)]
    samples = [(3, pack([(1, 2 * n * 10**9), (2, 10_000), (3, pack(counts))])) for n in range(1000)]
    groups = [(4, pack([(1, 5 << 20), (2, 3)])) for _ in range(100)]
    at.write_bytes(pack([(1, 2 * 10**18), (2, pack(counts)), *samples, *groups]))
    told = scene.device.json('report', scene.device.spec)
    expect('samples', (len(told['samples']), told['samples'][-1]['end']), (360, '1970-01-01T00:16:39Z'))
    expect('counters', set(told['counters'].values()), {7})
    expect('since', told['counted_since'], '2001-09-09T01:46:40Z')
    expect('groups', {g['resets_total'] for g in told['groups']}, {3})
    report(scene)
    stop_broker(scene)
    for bad in (b'garbage' * 100, pack([(1, 1)]), b''):
        at.write_bytes(bad)
        told = scene.device.json('report', scene.device.spec)
        expect('with a bad file', (told['samples'], set(told['counters'].values())), ([], {0}))
        stop_broker(scene)
    scene.good_dump()


@case
def hostile_labels(scene):
    """Names of records that an attacker wrote: one series each, no line more, nothing that a terminal obeys."""
    scene = scene(TINY, size=1)
    scene.good_dump()
    media = Media(scene)
    stop_broker(scene)
    good = media.copy_of_metadata()
    seen = set()
    for what, evil in HOSTILE.items():
        forged(scene, media, evil)
        found, _ = metrics(scene)
        names = {labels['container'] for n, labels, _ in found if n == 'zns_container_bytes'}
        expect(f'series of {what}', len(names), 1)
        name, = names
        clean(f'metrics, {what}', name)
        if len(name.encode()) > 1024:
            raise Failed(f'{what}: a label of {len(name)} characters')
        if what in ('quote', 'backslash', 'label', 'markup', 'style end', 'colour', 'new line', 'delete'):
            expect(what, name, escaped(evil.decode()))
        seen.add(name)
        devices = {labels['device'] for _, labels, _ in found if 'device' in labels}
        expect(f'devices with {what}', devices, {scene.device.info['uuid']})
        stop_broker(scene)
        media.put_back(good)
    expect('different names', len(seen), len(HOSTILE))
    run_ctl(scene, 0, 'verify', '--all')
