"""Serves one GGUF file on the OpenAI wire, for `cargo xtask judge local-model`.

Arguments: the file, the name that the model gets, the most tokens of one answer.
Writes the address as its only line to stdout when the server answers; ends when stdin ends, so that it never outlives
the judge, however that ends.
"""

import os
import sys
import time
import urllib.request

import xllamacpp

CONTEXT_TOKENS = 8192  # what the model was trained with
HEALTH_MAX_S = 60

path, name, answer_tokens = sys.argv[1:]
params = xllamacpp.CommonParams()
params.model.path = path
params.model_alias = {name}
params.hostnames = ["127.0.0.1"]
params.port = 0  # any free one
params.n_ctx = CONTEXT_TOKENS
params.n_parallel = 1  # one slot, so that a prefix of the last prompt is found again
params.n_predict = int(answer_tokens)
params.sampling.temp = 0.0  # the likeliest token: the same answer each time on one machine
server = xllamacpp.Server(params)
address = server.listening_address

# A proxy of the environment has no business with loopback.
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
until = time.monotonic() + HEALTH_MAX_S
while True:
    try:
        with opener.open(address + "/health", timeout=5) as answer:
            if answer.status == 200:
                break
    except OSError as error:
        if time.monotonic() > until:
            sys.exit(f"{address}/health does not answer: {error}")
    time.sleep(0.05)

print(address, flush=True)
sys.stdin.buffer.read()
# Not by the way of the destructors: one of them would wait for a request that still runs.
os._exit(0)
