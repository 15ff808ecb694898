#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""
A client of pycriu, as test/zonetests/rpc.py runs it; PYTHONPATH says whose pycriu.

  pyclient.py dump|restore|check|feature|version (--binary CRIU | --service SOCKET) [--images DIR] [--opts JSON] [--class]

The JSON is a criu_opts (for feature: a criu_features). Prints the answer as JSON, with "unknown_fields" if the answer
has fields that this pycriu does not know. With --class the calls of the class pycriu.criu are used, not its transport.
"""
import argparse
import json
import os
import sys

import pycriu
from google.protobuf.json_format import MessageToDict, ParseDict

rpc = pycriu.rpc
OPS = {'dump': rpc.DUMP, 'restore': rpc.RESTORE, 'check': rpc.CHECK, 'feature': rpc.FEATURE_CHECK, 'version': rpc.VERSION}


def by_class(client, op):
    try:
        answer = getattr(client, op)()
    except pycriu.CRIUException as e:
        return {'success': False, 'exception': str(e)}
    return dict({'success': True}, **({op: MessageToDict(answer)} if answer else {}))


def by_request(client, op, given):
    req = rpc.criu_req(type=OPS[op])
    if op == 'feature':
        ParseDict(given, req.features)
    elif op != 'version':
        req.opts.MergeFrom(client.opts)
    answer = client._send_req_and_recv_resp(req)
    known = rpc.criu_resp()
    known.CopyFrom(answer)
    known.DiscardUnknownFields()
    out = MessageToDict(answer, preserving_proto_field_name=True)
    out['unknown_fields'] = len(answer.SerializeToString()) != len(known.SerializeToString())
    out['request_bytes'] = len(req.SerializeToString())
    return out


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('op', choices=OPS)
    parser.add_argument('--binary')
    parser.add_argument('--service')
    parser.add_argument('--images')
    parser.add_argument('--opts', default='{}')
    parser.add_argument('--class', dest='by_class', action='store_true')
    args = parser.parse_args()
    given = json.loads(args.opts)
    client = pycriu.criu()
    if args.service:
        client.use_sk(args.service)
    else:
        client.use_binary(args.binary)
    if args.op != 'feature':
        ParseDict(given, client.opts)
    if args.images:
        client.opts.images_dir_fd = os.open(args.images, os.O_DIRECTORY)
    answer = by_class(client, args.op) if args.by_class else by_request(client, args.op, given)
    print(json.dumps(answer))
    return 0 if answer.get('success') else 1


if __name__ == '__main__':
    sys.exit(main())
