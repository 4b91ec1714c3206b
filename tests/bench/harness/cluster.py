"""The control plane's benchmarks, and I1: `cluster_rows ID` starts the daemons,
takes the rounds and writes the samples of each comparison as a line of JSON."""
import json
import subprocess

from . import rows
from .report import BenchError, NotMeasured, Result, print_results


def run(id, programs, options):
    """(results, versions)."""
    command = [programs.path("cluster_rows"), id]
    if options.rounds:
        command += ["--rounds", str(options.rounds)]
    results, versions = [], {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            kind, _, text = line.partition(" ")
            if kind == "RESULT":
                results.append(Result(**json.loads(text)))
            elif kind == "VERSION":
                name, _, version = text.strip().partition(" ")
                versions[name] = version
            else:
                print(line, end="")
    for result in results:
        result.must, result.aim = rows.MUSTS.get(result.id, (0, 0))
    if results:
        print_results(results)
    if process.returncode == NotMeasured.code:
        raise NotMeasured("see above")
    if process.returncode:
        raise BenchError(f"cluster_rows ended with {process.returncode}")
    return results, versions
