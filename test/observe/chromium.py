# SPDX-License-Identifier: GPL-2.0-only
"""A chromium without a window, told what to do over a pair of pipes (its DevTools protocol)."""
import base64
import json
import os
import signal
import subprocess
import tempfile
import time

from ztlib import Failed

WAIT_S = 120
HIGHEST = 16000     # px; it makes no higher picture


class Chromium:
    """A browser with one page. `asked` has the URLs that the page requested, `said` its console messages."""

    def __init__(self):
        self.profile = tempfile.TemporaryDirectory(prefix='zns-chromium-', ignore_cleanup_errors=True)
        ours_in, its_out = os.pipe()
        its_in, ours_out = os.pipe()

        def as_3_and_4():
            a, b = os.dup(its_in), os.dup(its_out)          # descriptors 3 and 4 must not be in use
            os.dup2(a, 3)
            os.dup2(b, 4)

        keep = [os.dup(0) for _ in range(2)]                # so that 3 and 4 are not what the copies get
        self.proc = subprocess.Popen(['chromium', '--headless', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage',
                                      '--no-first-run', '--disable-background-networking', '--hide-scrollbars',
                                      f'--user-data-dir={self.profile.name}', '--remote-debugging-pipe', 'about:blank'],
                                     preexec_fn=as_3_and_4, close_fds=False, stdin=subprocess.DEVNULL,
                                     stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        for fd in (its_in, its_out, *keep):
            os.close(fd)
        os.set_blocking(ours_in, False)
        self.pipe, self.into, self.rest, self.nr, self.session = ours_in, ours_out, b'', 0, None
        self.asked, self.said = [], []
        page = next(t for t in self.tell('Target.getTargets')['targetInfos'] if t['type'] == 'page')
        self.session = self.tell('Target.attachToTarget', targetId=page['targetId'], flatten=True)['sessionId']
        for domain in ('Page', 'Network', 'Log', 'Runtime'):
            self.tell(domain + '.enable')

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.killpg(self.proc.pid, signal.SIGKILL)        # the browser has a session of its own
        self.proc.wait()
        os.close(self.pipe)
        os.close(self.into)
        self.profile.cleanup()

    def message(self):
        end = time.monotonic() + WAIT_S
        while b'\0' not in self.rest:
            try:
                more = os.read(self.pipe, 1 << 20)
            except BlockingIOError:
                time.sleep(0.01)
                more = None
            if more == b'' or time.monotonic() > end:
                raise Failed('chromium is gone' if more == b'' else f'chromium does not answer within {WAIT_S} s')
            self.rest += more or b''
        one, self.rest = self.rest.split(b'\0', 1)
        one = json.loads(one)
        if one.get('method') == 'Network.requestWillBeSent':
            self.asked.append(one['params']['request']['url'])
        elif one.get('method') in ('Log.entryAdded', 'Runtime.exceptionThrown', 'Runtime.consoleAPICalled'):
            self.said.append(json.dumps(one['params'])[:300])
        return one

    def tell(self, method, **params):
        self.nr += 1
        order = {'id': self.nr, 'method': method, 'params': params}
        if self.session:
            order['sessionId'] = self.session
        os.write(self.into, json.dumps(order).encode() + b'\0')
        while True:
            one = self.message()
            if one.get('id') == self.nr:
                if 'error' in one:
                    raise Failed(f'{method}: {one["error"]}')
                return one['result']

    def show(self, path, width, scheme):
        """The page in a window of that width, light or dark."""
        self.asked, self.said = [], []
        self.tell('Emulation.setDeviceMetricsOverride', width=width, height=900, deviceScaleFactor=1, mobile=False)
        self.tell('Emulation.setEmulatedMedia', features=[{'name': 'prefers-color-scheme', 'value': scheme}])
        self.tell('Page.navigate', url=f'file://{path}')
        while self.message().get('method') != 'Page.loadEventFired':
            pass

    def value(self, expression):
        done = self.tell('Runtime.evaluate', expression=expression, returnByValue=True)
        if 'exceptionDetails' in done:
            raise Failed(f'in the page: {done["exceptionDetails"]}')
        return done['result'].get('value')

    def picture(self, path):
        size = self.tell('Page.getLayoutMetrics')['cssContentSize']
        shot = self.tell('Page.captureScreenshot', captureBeyondViewport=True, format='png',
                         clip={'x': 0, 'y': 0, 'width': size['width'], 'height': min(size['height'], HIGHEST), 'scale': 1})
        path.write_bytes(base64.b64decode(shot['data']))
