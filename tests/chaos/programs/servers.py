"""servers.py STEPS PAUSE OUTPUT EVERY: chief, worker and parameter server.

It has the shape of TensorFlow's jobs with parameter servers, by TF_CONFIG, without
TensorFlow: the server adds up what chief and worker send for each step. The chief
saves the sum each EVERY steps, gives it to the server at the start, and writes
OUTPUT/result in the end: steps, samples and sum.
"""

import json
import os
import socket
import socketserver
import sys
import threading
import time

STEPS, PAUSE, OUTPUT, EVERY = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3], int(sys.argv[4])
CONFIG = json.loads(os.environ["TF_CONFIG"])
BATCH = 8
WORKERS = 2
# Seconds: longer than any host is cut off.
PATIENCE = 120


def gradient(step, worker):
    return step * 1000003 % 1009 * (worker + 1)


class Parameters:
    """What the server holds."""

    def __init__(self):
        self._changed = threading.Condition()
        self._loaded = False
        self.step = self.samples = self.total = 0
        # Of the step that comes next, by worker: one that sends twice counts once.
        self._parts = {}

    def load(self, state):
        with self._changed:
            if not self._loaded:
                self.step, self.samples, self.total = state
            self._loaded = True
            self._changed.notify_all()
            return self._state()

    def add(self, worker, step, samples, value):
        """Returns once all workers have sent their part of the step."""
        with self._changed:
            if step == self.step + 1:
                self._parts[worker] = (samples, value)
            if len(self._parts) == WORKERS:
                self.step += 1
                self.samples += sum(part[0] for part in self._parts.values())
                self.total += sum(part[1] for part in self._parts.values())
                self._parts = {}
                self._changed.notify_all()
            if not self._changed.wait_for(lambda: self.step >= step, PATIENCE):
                raise TimeoutError("a worker did not come")
            return self._state()

    def wait_loaded(self):
        with self._changed:
            if not self._changed.wait_for(lambda: self._loaded, PATIENCE):
                raise TimeoutError("the chief did not come")
            return self._state()

    def _state(self):
        return [self.step, self.samples, self.total]


PARAMETERS = Parameters()


class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            call, *arguments = json.loads(line)
            answer = getattr(PARAMETERS, call)(*arguments)
            self.wfile.write(json.dumps(answer).encode() + b"\n")


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


def address(role):
    host, port = CONFIG["cluster"][role][0].rsplit(":", 1)
    return host, int(port)


def connect():
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return socket.create_connection(address("ps"), timeout=PATIENCE)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)  # Until the server listens.


def replace(path, text):
    with open(path + ".new", "w") as file:
        file.write(text)
    os.replace(path + ".new", path)


def work(worker):
    chief = worker == 0
    saved = os.path.join(OUTPUT, "state")
    stream = connect().makefile("rw")

    def call(*words):
        stream.write(json.dumps(words) + "\n")
        stream.flush()
        line = stream.readline()
        if not line:
            raise ConnectionError("the server has left")
        return json.loads(line)

    state = [0, 0, 0]
    if chief and os.path.exists(saved):
        with open(saved) as file:
            state = json.load(file)
    step, samples, total = call("load", state) if chief else call("wait_loaded")
    while step < STEPS:
        time.sleep(PAUSE)
        step, samples, total = call("add", worker, step + 1, BATCH, gradient(step + 1, worker))
        print(f"step {step}/{STEPS}", flush=True)
        if chief and step % EVERY == 0:
            replace(saved, json.dumps([step, samples, total]))
    if chief:
        replace(os.path.join(OUTPUT, "result"), f"{step} {samples} {total}\n")


def main():
    role = CONFIG["task"]["type"]
    if role == "ps":
        with Server(address("ps"), Handler) as server:
            server.serve_forever()
    work(0 if role == "chief" else 1)


if __name__ == "__main__":
    main()
