# SPDX-License-Identifier: GPL-2.0-only
"""
A registry of images for one test: pull only, over plain HTTP on the loopback device, everything in memory. containerd
2.0 and 2.1 pull a checkpoint's base image at every restore, even if they have it.
"""
import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MANIFEST = 'application/vnd.oci.image.manifest.v1+json'


class Registry:
    def __init__(self):
        self.blobs, self.tags = {}, {}
        registry = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = 'HTTP/1.1'

            def answer(self, with_body):
                part = self.path.partition('?')[0].strip('/').split('/')    # v2/NAME/manifests|blobs/WHAT
                what = registry.tags.get(f'{part[1]}:{part[3]}', part[3]) if len(part) == 4 else None
                data = b'{}' if part == ['v2'] else registry.blobs.get(what)
                self.send_response(404 if data is None else 200)
                data = data or b''
                self.send_header('Content-Length', str(len(data)))
                if what:
                    self.send_header('Content-Type', MANIFEST if part[2] == 'manifests' else 'application/octet-stream')
                    self.send_header('Docker-Content-Digest', what)
                self.end_headers()
                if with_body:
                    self.wfile.write(data)

            def do_GET(self):
                self.answer(True)

            def do_HEAD(self):
                self.answer(False)

            def log_message(self, *args):
                pass

        self.server = ThreadingHTTPServer(('127.0.0.1', 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def blob(self, data, kind):
        digest = f'sha256:{hashlib.sha256(data).hexdigest()}'
        self.blobs[digest] = data
        return {'mediaType': f'application/vnd.oci.image.{kind}', 'digest': digest, 'size': len(data)}

    def add(self, name, layer, program):
        """An image with one layer (a tar file in memory); what to pull it by."""
        tree = self.blob(layer, 'layer.v1.tar')
        config = self.blob(json.dumps({'architecture': 'amd64', 'os': 'linux', 'config': {'Entrypoint': [program]},
                                       'rootfs': {'type': 'layers', 'diff_ids': [tree['digest']]}}).encode(), 'config.v1+json')
        manifest = self.blob(json.dumps({'schemaVersion': 2, 'mediaType': MANIFEST, 'config': config, 'layers': [tree]}).encode(),
                             'manifest.v1+json')
        self.tags[f'{name}:1'] = manifest['digest']
        return f'localhost:{self.server.server_port}/{name}:1'
