// Versions of what the benchmarks of the engine use: they depend on them.
#ifndef LOCKSTEP_TESTS_BENCH_VERSIONS_H_
#define LOCKSTEP_TESTS_BENCH_VERSIONS_H_

#include <map>
#include <string>

namespace lockstep {

// lockstep, compiler, Open MPI and Gloo as installed; "none" for what is not
// there.
std::map<std::string, std::string> EngineVersions();

void PrintFields(const std::map<std::string, std::string>& fields);

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_BENCH_VERSIONS_H_
