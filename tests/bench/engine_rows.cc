#include "tests/bench/engine_rows.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep {
namespace {

constexpr uint64_t kKiB = 1 << 10;
constexpr uint64_t kMiB = 1 << 20;

using Strings = std::vector<std::string>;

Strings operator+(Strings a, const Strings& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Contender Ours(const std::string& backend, const Strings& arguments) {
  Contender ours;
  ours.label = backend;
  ours.program = "engine_probe";
  ours.arguments = Strings{"--backend", backend} + arguments;
  return ours;
}

struct Setting {
  std::string label;
  Strings options;
};

Setting Mca(const std::string& name, const std::string& value) {
  return {fmt::format("{}={}", name, value), {"--mca", name, value}};
}

Setting operator+(const Setting& a, const Setting& b) {
  const char* const gap = a.label.empty() || b.label.empty() ? "" : " ";
  return {a.label + gap + b.label, a.options + b.options};
}

// Its own choice, and each algorithm by force.
std::vector<Setting> MpiAlgorithms() {
  const Setting dynamic = Mca("coll_tuned_use_dynamic_rules", "1");
  std::vector<Setting> all = {{}};
  for (const char* algorithm : {"3", "4", "6"}) {
    all.push_back(dynamic + Mca("coll_tuned_allreduce_algorithm", algorithm));
  }
  for (const char* segment : {"65536", "262144", "1048576"}) {
    all.push_back(dynamic + Mca("coll_tuned_allreduce_algorithm", "5") +
                  Mca("coll_tuned_allreduce_algorithm_segmentsize", segment));
  }
  return all;
}

// Those that were best at some size of those that are quickly measured.
bool IsLikely(const std::string& label) {
  if (label.find("frag_size") != std::string::npos) return false;
  const bool copies = label.find("mechanism=cma") != std::string::npos;
  if (label.find("coll_sm_priority") != std::string::npos) return copies;
  if (label.find("segmentsize=65536") != std::string::npos) return !copies;
  if (label.find("algorithm=6") != std::string::npos ||
      label.find("segmentsize=262144") != std::string::npos) {
    return label.find("self,tcp") != std::string::npos;
  }
  return label.find("algorithm=4") != std::string::npos;
}

Contender Mpi(const Setting& setting, bool pinned) {
  Contender mpi;
  mpi.label = "mpirun " + setting.label;
  mpi.likely = IsLikely(setting.label);
  mpi.program = "mpi_allreduce";
  mpi.starter =
      Strings{"mpirun", "-np", "%n", "--bind-to", pinned ? "core" : "none"};
  if (!pinned) mpi.starter.push_back("--oversubscribe");
  mpi.starter = mpi.starter + Strings{"--mca", "pml", "ob1"} + setting.options;
  mpi.variants = {"in place", "not in place"};
  return mpi;
}

// Over shared memory.
PeerGroup OpenMpi(bool pinned) {
  PeerGroup group{"Open MPI", {}};
  const Setting vader{"--mca btl self,vader", {"--mca", "btl", "self,vader"}};
  for (const char* copy : {"cma", "none"}) {
    const Setting base = vader + Mca("btl_vader_single_copy_mechanism", copy);
    for (const Setting& algorithm : MpiAlgorithms()) {
      group.contenders.push_back(Mpi(base + algorithm, pinned));
    }
    group.contenders.push_back(
        Mpi(base + Mca("coll_sm_priority", "100"), pinned));
  }
  return group;
}

std::vector<Contender> OpenMpiTcp() {
  std::vector<Contender> all;
  const Setting tcp{
      "--mca btl self,tcp",
      {"--mca", "btl", "self,tcp", "--mca", "btl_tcp_if_include", "lo"}};
  for (const Setting& fragments :
       {Setting{}, Mca("btl_tcp_rdma_pipeline_frag_size", "131072")}) {
    for (const Setting& algorithm : MpiAlgorithms()) {
      all.push_back(Mpi(tcp + fragments + algorithm, true));
    }
  }
  return all;
}

Contender Gloo(const std::string& algorithm, bool pinned) {
  Contender gloo;
  const bool old = algorithm.rfind("old_", 0) == 0;
  gloo.label =
      fmt::format("gloo {}{}{}", old ? algorithm.substr(4) : algorithm,
                  old ? " sync busy-poll" : "", pinned ? " pinned" : "");
  gloo.program = "gloo_allreduce";
  gloo.likely = algorithm == "bcube" || algorithm == "old_ring" ||
                algorithm == (pinned ? "old_bcube" : "old_ring_chunked") ||
                algorithm == "old_halving_doubling";
  // Both sides may send all before either receives: it stalls at large sizes.
  if (old) gloo.family = "gloo sync";
  gloo.arguments = {"--algorithm", algorithm, "--pin", pinned ? "1" : "0"};
  return gloo;
}

PeerGroup GlooDefault() { return {"Gloo default", {Gloo("ring", false)}}; }

// The old interface, which polls.
PeerGroup GlooTuned() {
  PeerGroup group{"Gloo tuned", {}};
  for (const char* algorithm :
       {"old_halving_doubling", "old_ring_chunked", "old_ring", "old_bcube"}) {
    for (const bool pinned : {true, false}) {
      group.contenders.push_back(Gloo(algorithm, pinned));
    }
  }
  return group;
}

PeerGroup BestGloo() {
  PeerGroup group = GlooTuned();
  group.name = "Gloo";
  group.contenders.push_back(Gloo("ring", false));
  group.contenders.push_back(Gloo("bcube", false));
  return group;
}

PeerGroup BestTcp() {
  PeerGroup group = BestGloo();
  group.name = "Open MPI tcp or Gloo";
  const std::vector<Contender> mpi = OpenMpiTcp();
  group.contenders.insert(group.contenders.end(), mpi.begin(), mpi.end());
  return group;
}

PeerGroup PlainRing() {
  Contender ring;
  ring.label = "a plain TCP ring";
  ring.program = "tcp_ring";
  return {"plain TCP ring", {ring}};
}

EngineBench OneHost(const std::string& id, const std::string& what) {
  EngineBench bench;
  bench.id = id;
  bench.what = what;
  bench.ours = Ours("shm", {"--pin", "1"});
  return bench;
}

std::vector<EngineBench> Make() {
  std::vector<EngineBench> all;

  EngineBench a1 = OneHost("A1", "one host, lockstep's buckets");
  a1.peers = {OpenMpi(true)};
  a1.rows = {{1 * kMiB, 0, 2.5, 3.2},
             {25 * kMiB, 0, 2.3, 2.9},
             {100 * kMiB, 0, 2.2, 2.7}};
  all.push_back(a1);

  EngineBench a2 = a1;
  a2.id = "A2";
  a2.peers = {BestGloo()};
  a2.rows = {{1 * kMiB, 0, 5, 6}, {25 * kMiB, 0, 8, 12}, {100 * kMiB, 0, 6, 8}};
  all.push_back(a2);

  EngineBench a3 = OneHost("A3", "one host, private tensors");
  a3.ours.variants = {"", "private"};
  a3.peers = {OpenMpi(true)};
  a3.rows = {{25 * kMiB, 0, 1.0, 1.1}, {100 * kMiB, 0, 1.15, 1.3}};
  all.push_back(a3);

  EngineBench a4 = OneHost("A4", "one host, 1 KiB, batches of 100");
  a4.peers = {OpenMpi(true), GlooTuned()};
  a4.rows = {{1 * kKiB, 0, 0.9, 2}, {1 * kKiB, 1, 30, 60}};
  all.push_back(a4);

  EngineBench a5 = OneHost("A5", "four ranks on two cores");
  a5.bare.label = "processes that share the work without an engine";
  a5.bare.program = "bare_reduce";
  a5.bare.variants = {"yielding", "asleep", "napping"};
  a5.ranks = 4;
  a5.ours = Ours("shm", {});
  a5.peers = {OpenMpi(false), GlooDefault()};
  a5.rows = {{25 * kMiB, 0, 3, 4}, {1 * kKiB, 1, 10, 40}};
  all.push_back(a5);

  EngineBench a6;
  a6.id = "A6";
  a6.what = "TCP on one machine";
  a6.wire = Wire::kLoopback;
  a6.ours = Ours("tcp", {"--pin", "1"});
  a6.peers = {BestTcp()};
  a6.rows = {{1 * kKiB, 0, 1.0, 1.4},
             {1 * kMiB, 0, 0.95, 1.1},
             {25 * kMiB, 0, 1.0, 1.2},
             {100 * kMiB, 0, 0.95, 1.1}};
  all.push_back(a6);

  EngineBench a7 = a6;
  a7.id = "A7";
  a7.peers = {GlooDefault()};
  a7.rows = {{1 * kKiB, 0, 5, 20},
             {1 * kMiB, 0, 1.5, 2},
             {25 * kMiB, 0, 1.2, 1.4},
             {100 * kMiB, 0, 1.15, 1.35}};
  all.push_back(a7);

  EngineBench a8;
  a8.id = "A8";
  a8.what = "four hosts (network namespaces), lines of 2 Gbit/s";
  a8.ranks = 4;
  a8.wire = Wire::kLine;
  a8.ours = Ours("tcp", {});
  a8.peers = {PlainRing()};
  a8.rows = {{25 * kMiB, 0, 0.95, 0.98}};
  a8.line_rate = "2gbit";
  all.push_back(a8);
  return all;
}

}  // namespace

const std::vector<EngineBench>& EngineBenches() {
  static const auto& all = *new std::vector<EngineBench>(Make());
  return all;
}

SampleCount SamplesFor(uint64_t bytes, bool calibration) {
  if (bytes <= 1 * kKiB) return {calibration ? 5 : 20, 100};
  if (bytes <= 64 * kKiB) return {calibration ? 200 : 2000, 1};
  if (bytes <= 4 * kMiB) return {calibration ? 40 : 200, 1};
  return {calibration ? 5 : 20, 1};
}

}  // namespace lockstep
