"""Checks the signatures of requests to Bedrock with botocore, for `cargo xtask judge providers sdks`.

Writes its address as its only line; ends when stdin ends. A request whose signature is the one that botocore makes of it
is answered with the text `signed`, whole in any case, which clients must take in place of a stream; any other with a 403.
"""

import datetime
import http.server
import json
import os
import re
import sys
import threading

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

KEYS = Credentials("AKTEST", "secret")
REGION = "eu-west-1"
WANTED = {"host", "x-amz-date", "content-type"}


def fault(method, path, headers, body):
    """What is wrong with the signature; None when nothing is."""
    given = headers.get("authorization") or ""
    parts = re.fullmatch(r"AWS4-HMAC-SHA256 Credential=(\S+), SignedHeaders=(\S+), Signature=([0-9a-f]{64})", given)
    if parts is None:
        return f"no signature: {given!r}"
    credential, names, signature = parts.groups()
    names = names.split(";")
    if not WANTED <= set(names):
        return f"signs too little: {names}"
    request = AWSRequest(method, f"http://{headers['host']}{path}", {name: headers[name] for name in names}, body)
    request.context["timestamp"] = headers["x-amz-date"]
    date = datetime.datetime.strptime(headers["x-amz-date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=datetime.timezone.utc)
    late = abs((datetime.datetime.now(datetime.timezone.utc) - date).total_seconds())
    auth = SigV4Auth(KEYS, "bedrock", REGION)
    if credential != auth.scope(request):
        return f"the scope is {credential}, it should be {auth.scope(request)}"
    canonical = auth.canonical_request(request)
    meant = auth.signature(auth.string_to_sign(request, canonical), request)
    if meant != signature:
        return f"botocore signs this:\n{canonical}"
    return None if late < 300 else f"signed {late} s ago"


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        wrong = fault(self.command, self.path, self.headers, body)
        message = {"role": "assistant", "content": [{"text": "signed"}]}
        usage = {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2}
        good = {"output": {"message": message}, "stopReason": "end_turn", "usage": usage, "metrics": {"latencyMs": 1}}
        answer = json.dumps({"message": wrong} if wrong else good).encode()
        self.send_response(403 if wrong else 200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(answer)))
        if wrong:
            self.send_header("x-amzn-errortype", "InvalidSignatureException")
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(f"http://127.0.0.1:{server.server_port}", flush=True)
sys.stdin.buffer.read()
os._exit(0)
