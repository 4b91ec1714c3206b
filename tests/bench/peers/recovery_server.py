"""What R7's peers need beside their ranks, until standard input ends: torchft's
lighthouse, or the TCPStore of _reconfigure. Its first line is the address."""

import argparse
import sys


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["lighthouse", "store"])
    parser.add_argument("--heartbeat-timeout-ms", type=int)
    parser.add_argument("--join-timeout-ms", type=int)
    parser.add_argument("--quorum-tick-ms", type=int)
    args = parser.parse_args()
    if args.what == "lighthouse":
        from torchft.coordination import LighthouseServer

        server = LighthouseServer(
            bind="127.0.0.1:0", min_replicas=2,
            heartbeat_timeout_ms=args.heartbeat_timeout_ms,
            join_timeout_ms=args.join_timeout_ms, quorum_tick_ms=args.quorum_tick_ms)
        address = "http://127.0.0.1:" + server.address().rpartition(":")[2]
    else:
        from torch.distributed import TCPStore

        server = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        address = f"127.0.0.1:{server.port}"
    print(address, flush=True)
    sys.stdin.read()


main()
