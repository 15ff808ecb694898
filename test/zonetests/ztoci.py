# SPDX-License-Identifier: GPL-2.0-only
"""An OCI layout, read and written by other code than the one that is tested."""
import hashlib
import io
import json
import tarfile
from pathlib import Path

from ztscene import expect

TAR = 'application/vnd.oci.image.layer.v1.tar'
OF = 'org.zns-criu.checkpoint'


class Layout:
    """An OCI layout, read and written by other code than the one that is tested."""

    def __init__(self, path):
        self.path = Path(path)
        self.blobs = self.path / 'blobs/sha256'

    def index(self):
        return json.loads((self.path / 'index.json').read_text())

    def tags(self):
        return sorted(m['annotations']['org.opencontainers.image.ref.name'] for m in self.index()['manifests'])

    def blob(self, descriptor):
        """Returns the bytes of a blob, after comparing them with its descriptor."""
        kind, digits = descriptor['digest'].split(':')
        raw = (self.blobs / digits).read_bytes()
        expect(f'{digits}: size and digest', (len(raw), kind, hashlib.sha256(raw).hexdigest()), (descriptor['size'], 'sha256', digits))
        return raw

    def manifest(self, tag):
        found, = [m for m in self.index()['manifests'] if m['annotations']['org.opencontainers.image.ref.name'] == tag]
        return json.loads(self.blob(found))

    def layers(self, tag):
        return [d['digest'] for d in self.manifest(tag)['layers']]

    def unpack(self, tag, to):
        """Unpacks the image as a container engine would. Returns the directory for criu."""
        to.mkdir()
        for d in self.manifest(tag)['layers']:
            with tarfile.open(fileobj=io.BytesIO(self.blob(d))) as tar:
                tar.extractall(to)
        return to / 'checkpoint'

    def put(self, raw, media=TAR, **more):
        digits = hashlib.sha256(raw).hexdigest()
        self.blobs.mkdir(parents=True, exist_ok=True)
        (self.blobs / digits).write_bytes(raw)
        return {'mediaType': media, 'digest': f'sha256:{digits}', 'size': len(raw), **more}

    def tell(self, layers, tag='latest', **more):
        """Adds an image with these layers to the layout."""
        manifest = json.dumps({'schemaVersion': 2, 'layers': layers, **more}).encode()
        found = self.put(manifest, 'application/vnd.oci.image.manifest.v1+json',
                         annotations={'org.opencontainers.image.ref.name': tag})
        old = self.index()['manifests'] if (self.path / 'index.json').exists() else []
        (self.path / 'index.json').write_text(json.dumps({'schemaVersion': 2, 'manifests': [*old, found]}))
        (self.path / 'oci-layout').write_text('{"imageLayoutVersion":"1.0.0"}')


def tar_of(files, where='checkpoint/'):
    """Makes a tar. files: {name: bytes, or a link's target}."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode='w') as tar:
        for name, what in files.items():
            info = tarfile.TarInfo(where + name)
            if isinstance(what, bytes):
                info.size = len(what)
                tar.addfile(info, io.BytesIO(what))
            else:
                info.type, info.linkname = tarfile.SYMTYPE, what
                tar.addfile(info)
    return out.getvalue()


def files_of(raw):
    """{name: bytes} of a tar in memory, in its order."""
    with tarfile.open(fileobj=io.BytesIO(raw)) as tar:
        return {m.name: tar.extractfile(m).read() for m in tar if m.isfile()}
