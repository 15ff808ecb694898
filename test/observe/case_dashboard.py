# SPDX-License-Identifier: GPL-2.0-only
"""The dashboard, in a Prometheus."""
import json
import re
import socket
import subprocess
import threading
import urllib.error
import urllib.parse
import urllib.request
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from case_broker import Peer
from forge import pack
from obs import metrics, of_prometheus
from ztlib import Failed, wait_until
from ztscene import DIES, case_of, expect

CASES = {}
case = case_of(CASES)


DASHBOARD = Path(__file__).resolve().parents[2] / 'grafana' / 'zns-criu.json'


class Prometheus:
    """A server that scrapes `znsctl metrics` of a scene every two seconds."""

    def __init__(self, scene):
        class Answer(BaseHTTPRequestHandler):
            def do_GET(self):
                text = subprocess.run([scene.cfg.znsctl, 'metrics'], env=scene.device.env, capture_output=True, check=True).stdout
                self.send_response(200)
                self.send_header('Content-Type', 'text/plain; version=0.0.4')
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_):
                pass

        self.target = ThreadingHTTPServer(('127.0.0.1', 0), Answer)
        threading.Thread(target=self.target.serve_forever, daemon=True).start()
        with socket.socket() as s:
            s.bind(('127.0.0.1', 0))
            port = s.getsockname()[1]
        self.url = f'http://127.0.0.1:{port}/api/v1/'
        config = scene.dir / 'prometheus.yml'
        config.write_text(json.dumps({'scrape_configs': [{'job_name': 'zns', 'scrape_interval': '2s', 'scrape_timeout': '2s', 'static_configs': [
            {'targets': [f'127.0.0.1:{self.target.server_port}']}]}]}))
        with open(scene.dir / 'prometheus.log', 'wb') as log_file:
            self.server = subprocess.Popen([of_prometheus('prometheus'), f'--config.file={config}', f'--storage.tsdb.path={scene.dir}/tsdb',
                                            f'--web.listen-address=127.0.0.1:{port}'], stdout=log_file, stderr=log_file)

    def query(self, expression):
        """The series that an expression has now; None: the server does not answer."""
        try:
            with urllib.request.urlopen(f'{self.url}query?{urllib.parse.urlencode({"query": expression})}', timeout=10) as answer:
                return json.load(answer)['data']['result']
        except urllib.error.HTTPError as e:
            if e.code == 503:               # the server is still starting
                return None
            raise Failed(f'{expression}: {e.read().decode()}') from e
        except OSError:
            return None

    def end(self):
        self.server.terminate()
        self.server.wait(30)
        self.target.shutdown()


@case
def dashboard(scene):
    """Each expression of the dashboard is of metrics and labels that exist, and in a Prometheus each has series that it draws."""
    panels = json.loads(DASHBOARD.read_text())['panels']
    expect('ids that are there twice', len({p['id'] for p in panels}), len(panels))
    places = [(x, y) for p in panels for x in range(p['gridPos']['x'], p['gridPos']['x'] + p['gridPos']['w'])
              for y in range(p['gridPos']['y'], p['gridPos']['y'] + p['gridPos']['h'])]
    expect('panels on top of others', len(places), len(set(places)))
    targets = [(p['title'], t) for p in panels for t in p.get('targets', ())]
    scene = scene([*DIES, '--zones', '32', '--zone-size', '16M', '--max-open', '6', '--max-active', '8', '--timing', 'on'], size=150)
    ident = scene.good_dump(qos='100')
    server = Prometheus(scene)
    reader = Peer(scene)
    try:
        expect('a reader', reader.ask({6: pack([(1, uuid.UUID(ident).bytes)])})[0], 0)
        found, kinds = metrics(scene)
        labels = {name: {k for n, got, _ in found if n == name for k in got} for name in kinds}
        if not wait_until(lambda: server.query('count_over_time(zns_up[1m]) > 2'), 60, 0.5):
            raise Failed((scene.dir / 'prometheus.log').read_text()[-500:])
        for title, target in targets:
            expression = target['expr'].replace('$__rate_interval', '20s').replace('$device', '.*')
            names = re.findall(r'\bzns_\w+', expression)
            expect(f'{title}: metrics that do not exist', [n for n in names if n not in kinds], [])
            memory = all(n.startswith('zns_memory_') for n in names)        # no context runs here
            for name, inside in re.findall(r'(zns_\w+)\{([^}]*)\}', expression):
                expect(f'{title}: labels', set(re.findall(r'(\w+)[=!]', inside)) <= labels[name], True)
            # on a busy machine some of the scrapes may come too late
            series = server.query(expression) if memory else wait_until(lambda: server.query(expression), step=0.5)
            if not series and not memory:
                raise Failed(f'{title}: {expression} has no series')
            for used in re.findall(r'\{\{(\w+)\}\}', target['legendFormat']):
                expect(f'{title}: {used}', all(used in s['metric'] for s in series or ()), True)
        if server.query('absent(zns_no_such_metric)') == [] or server.query('zns_no_such_metric') != []:
            raise Failed('this Prometheus answers anything')
    finally:
        reader.close()
        server.end()
