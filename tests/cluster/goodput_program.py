"""goodput_program.py DIR: a joined rank that writes down how its time went.

It sleeps in phases of known length. Attempt 1 ends after FAILS_AT steps with
exit code 42, which asks for a restart; attempt 2 begins at RESUMES_AT, repeats
the steps between, stands still once, and finishes. DIR/truth-RANK-ATTEMPT is
JSON: wall times of its start and end, and seconds per phase, of steps that are
new and of repeated ones.
"""

import json
import os
import sys
import time


def start_of_process():
    with open("/proc/self/stat") as file:
        ticks = int(file.read().rsplit(")", 1)[1].split()[19])
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.time() - age


STARTED = start_of_process()
# Before it joins, its time is unknown: it might be any program.
time.sleep(2)

import lockstep  # noqa: E402

DIRECTORY = sys.argv[1]
RANK = int(os.environ["RANK"])
FAILS_AT, RESUMES_AT, COMPILES_AT, STALLS_AT, STEPS = 14, 8, 18, 22, 32
FIRST = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
truth = {"started": STARTED, "new": {}, "repeated": {}, "starting": 0.0, "standing": 0.0}


def end():
    truth["ended"] = time.time()
    name = os.path.join(DIRECTORY, f"truth-{RANK}-{1 if FIRST else 2}")
    with open(name + ".tmp", "w") as file:
        json.dump(truth, file)
    os.rename(name + ".tmp", name)


def spend(session, phase, seconds, counts):
    with session.phase(phase):
        begin = time.time()
        time.sleep(seconds)
        counts[phase] = counts.get(phase, 0.0) + time.time() - begin


session = lockstep.join()
truth["joined"] = time.time()
time.sleep(2)
for step in range(0 if FIRST else RESUMES_AT, STEPS):
    if FIRST and step == FAILS_AT:
        end()
        # The first exit ends the other rank, too.
        while not os.path.exists(os.path.join(DIRECTORY, f"truth-{1 - RANK}-1")):
            time.sleep(0.01)
        sys.exit(42)
    repeats = not FIRST and step < FAILS_AT
    counts = truth["repeated" if repeats else "new"]
    if "stepping" not in truth:
        truth["stepping"] = time.time()
    # As a framework does at the first step and for a new shape. It is no work on
    # the step, so it is not repeated either.
    if step in (0, RESUMES_AT, COMPILES_AT):
        spend(session, "compile", 1.5, truth["new"])
    spend(session, "input", 0.4, counts)
    spend(session, "compute", 1.0, counts)
    spend(session, "allreduce", 0.3, counts)
    spend(session, "optimizer", 0.2, counts)
    if not FIRST and step == STALLS_AT:
        truth["stands"] = time.time()
        time.sleep(12)
        truth["goes_on"] = time.time()
    session.step(step=step, samples=8)
    if step % 4 == 3:
        spend(session, "checkpoint", 0.7, counts)
        spend(session, "evaluation", 0.8, counts)
# Rank 1 ends first and idles until its job ends; that takes less than a stall.
truth["lingers"] = 0.0 if RANK == 1 else 4.0
time.sleep(truth["lingers"])
end()
