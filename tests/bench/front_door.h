// What benchmarks of jobs in AI Platform's words stand on: a site table, a
// package and a TrainingJob.
//
// An interpreter's own start takes longer than everything that lockstep does
// before it, so the site's interpreters are small programs of the benchmark,
// which `python -m MODULE ARGS` starts in CPython's place.
#ifndef LOCKSTEP_TESTS_BENCH_FRONT_DOOR_H_
#define LOCKSTEP_TESTS_BENCH_FRONT_DOOR_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "client/package/pack.h"
#include "tests/bench/bench_cluster.h"

namespace lockstep {

// What a task of the site's machine "bench" reserves, beside its cores.
inline constexpr int64_t kBenchMachineBytes = 16 << 20;

// Gives the cluster a site table with the machine "bench" and with `runtimes`
// (name -> interpreter), and waits until it is read.
Status UseBenchSite(BenchCluster* bench, double cpus,
                    const std::map<std::string, std::string>& runtimes);

// A folder "trainer" with task.py below `dir`; returns its path.
StatusOr<std::string> WriteTrainer(const std::string& dir);

// As the API has it.
v1::Package PackageMessage(const PackedPackage& packed);
// Uploads it unless it is there.
Status Upload(Client* client, const PackedPackage& packed);

// A chief and `workers` workers on machines "bench", which run trainer.task by
// the interpreter `runtime`.
v1::TrainingJob BenchTraining(const std::string& name,
                              const v1::Package& package,
                              const std::string& runtime, int workers,
                              const std::vector<std::string>& args);

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_BENCH_FRONT_DOOR_H_
