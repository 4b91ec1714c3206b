"""history.py STEPS PAUSE OUTPUT EVERY: a program that knows nothing of lockstep.

Rank R makes STEPS steps by itself. Each is a line "R ATTEMPT STEP" of
OUTPUT/history; each EVERY steps it saves how far it is in OUTPUT/state-R, from
which it resumes.
"""

import os
import sys
import time

STEPS, PAUSE, OUTPUT, EVERY = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3], int(sys.argv[4])
RANK = int(os.environ["RANK"])
ATTEMPT = int(os.environ["LOCKSTEP_GENERATION"])
STATE = os.path.join(OUTPUT, f"state-{RANK}")


def save(step):
    with open(STATE + ".new", "w") as file:
        file.write(str(step))
    os.replace(STATE + ".new", STATE)


def main():
    done = 0
    if os.path.exists(STATE):
        with open(STATE) as file:
            done = int(file.read())
    history = os.open(
        os.path.join(OUTPUT, "history"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644
    )
    for step in range(done + 1, STEPS + 1):
        time.sleep(PAUSE)
        os.write(history, f"{RANK} {ATTEMPT} {step}\n".encode())
        print(f"step {step}/{STEPS}", flush=True)
        if step % EVERY == 0 or step == STEPS:
            save(step)


if __name__ == "__main__":
    main()
