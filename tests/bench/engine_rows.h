// The all-reduce benchmarks A1 to A8: what is measured, against whom, and what
// is asked for. Pure.
#ifndef LOCKSTEP_TESTS_BENCH_ENGINE_ROWS_H_
#define LOCKSTEP_TESTS_BENCH_ENGINE_ROWS_H_

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

// One way to do the all-reduce: a probe program (peers/probe.h) and settings.
struct Contender {
  std::string label;    // settings as people know them
  std::string program;  // of the build's bench directory
  // What starts all ranks of the program at once, "%n" for how many; empty: it
  // is started once for each rank.
  std::vector<std::string> starter;
  std::vector<std::string> arguments;
  // Not empty: after two of a family stood still at a size, the others are not
  // tried at it.
  std::string family;
  // Was the best at some size on some machine: a short run tries no others.
  bool likely = false;
  // The probe's variants that are tried, and what to call them.
  std::vector<std::string> variants = {""};
};

// The best of these for a size, found in a calibration round, is the peer.
struct PeerGroup {
  std::string name;  // "Open MPI"
  std::vector<Contender> contenders;
};

struct EngineRow {
  uint64_t bytes = 0;
  size_t peer = 0;  // of EngineBench::peers
  double must = 0;  // peer / ours
  double aim = 0;
};

enum class Wire {
  kMemory,    // of one host
  kLoopback,  // TCP in one host
  kLine,      // shaped lines between hosts
};

struct EngineBench {
  std::string id;
  std::string what;
  int ranks = 2;
  Contender ours;
  std::vector<PeerGroup> peers;
  std::vector<EngineRow> rows;
  // With a program: it runs by turns with both sides, at sizes that the caches
  // do not hold. The best of its variants is the rows' limit.
  Contender bare;
  // Not empty: each rank is a host of its own, whose line has this rate.
  std::string line_rate;
  Wire wire = Wire::kMemory;
};

// A1, A2, ... in order.
const std::vector<EngineBench>& EngineBenches();

struct SampleCount {
  int samples = 0;
  int batch = 1;  // operations of one sample
};
// Of a round; for a calibration fewer.
SampleCount SamplesFor(uint64_t bytes, bool calibration);

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_BENCH_ENGINE_ROWS_H_
