// What a worker daemon says.
#include "common/wire/worker_wire.h"

#include "common/base/host_port.h"
#include "common/model/limits.h"
#include "common/model/names.h"
#include "common/wire/field_checker.h"
#include "common/wire/protocol_version.h"

namespace lockstep {
namespace {

constexpr size_t kMaxLostPeerError = 512;

v1::RankEvent EventToProto(const RankEvent& value) {
  v1::RankEvent out;
  out.set_number(value.number);
  out.set_rank(value.rank);
  *out.mutable_time() = ToProto(value.time);
  out.set_reason(ToProto(value.reason));
  out.set_message(value.message);
  return out;
}

StatusOr<RankEvent> ParseEvent(const v1::RankEvent& value,
                               std::string_view path) {
  FieldChecker check(path);
  RankEvent out;
  check.Range("number", value.number(), 1, UINT32_MAX);
  check.Range("rank", value.rank(), 0, kMaxRanks - 1);
  check.Take(FromProto(value.time(), check.At("time")), &out.time);
  check.Take(FromProto(value.reason(), check.At("reason")), &out.reason);
  check.Bytes("message", value.message(), kMaxReportText);
  if (!check.ok()) return check.status();
  out.number = value.number();
  out.rank = value.rank();
  out.message = value.message();
  return out;
}

void CheckGang(const std::string& job, Generation generation,
               FieldChecker* check) {
  check->JobName("job", job);
  check->Require(generation > 0, "generation", "must be 1 or more");
}

StatusOr<GangProgress> ParseProgress(const v1::GangProgress& value,
                                     std::string_view path) {
  FieldChecker check(path);
  GangProgress out;
  CheckGang(value.job(), value.generation(), &check);
  check.Count("ranks", value.ranks_size(), kMaxRanks);
  for (int i = 0; check.ok() && i < value.ranks_size(); ++i) {
    const v1::RankStatus& rank = value.ranks(i);
    const FieldChecker at(check.At("ranks", i));
    RankStatus& status = out.ranks.emplace_back();
    status.rank = rank.rank();
    check.Range("ranks.rank", rank.rank(), 0, kMaxRanks - 1);
    if (rank.has_progress()) {
      check.Take(FromProto(rank.progress(), at.At("progress")),
                 &status.progress);
    }
    check.Take(FromProto(rank.usage(), at.At("usage")), &status.usage);
  }
  if (!check.ok()) return check.status();
  out.job = value.job();
  out.generation = value.generation();
  return out;
}

template <typename Message>
StatusOr<RendezvousEntry> ParseEntry(const Message& message,
                                     const std::string& value,
                                     std::string_view path) {
  FieldChecker check(path);
  CheckGang(message.job(), message.generation(), &check);
  check.Require(!message.key().empty(), "key", "is empty");
  check.Bytes("key", message.key(), kMaxWireKey);
  check.Count("value", value.size(), kMaxWireValue);
  if (!check.ok()) return check.status();
  return RendezvousEntry{message.job(), message.generation(), message.key(),
                         value};
}

template <typename Message>
Message ToEntry(const RendezvousEntry& value) {
  Message out;
  out.set_job(value.job);
  out.set_generation(value.generation);
  out.set_key(value.key);
  return out;
}

}  // namespace

v1::GangPhase ToProto(GangPhase value) {
  return static_cast<v1::GangPhase>(value);
}

StatusOr<GangPhase> FromProto(v1::GangPhase value, std::string_view path) {
  if (value == 0 || !v1::GangPhase_IsValid(value)) {
    return InvalidArgument("{}: {} is not a value that is known here", path,
                           static_cast<int>(value));
  }
  return static_cast<GangPhase>(value);
}

v1::Register ToProto(const Registration& value) {
  const NodeInfo& node = value.node;
  v1::Register out;
  out.set_node(node.name);
  out.mutable_incarnation()->set_counter(node.incarnation.counter);
  out.mutable_incarnation()->set_nonce(node.incarnation.nonce);
  out.set_boot_id(node.boot_id);
  out.set_hostname(node.hostname);
  out.set_version(node.version);
  out.set_address(node.address);
  out.set_http_address(node.http_address);
  out.set_http_tls(node.http_tls);
  *out.mutable_capacity() = ToProto(node.capacity);
  for (const Gpu& gpu : node.gpus) *out.add_gpus() = ToProto(gpu);
  for (const GangStatus& gang : value.gangs) *out.add_gangs() = ToProto(gang);
  out.set_limits_enforced(node.limits_enforced);
  out.set_pool(node.pool);
  out.set_limits_message(node.limits_message);
  if (node.certificate_end_time) {
    *out.mutable_certificate_end_time() = ToProto(*node.certificate_end_time);
  }
  out.set_container_engine(node.container_engine);
  for (const std::string& uid : value.work_jobs) out.add_work_jobs(uid);
  if (value.obeyed) {
    out.mutable_obeyed()->set_history(value.obeyed->history);
    out.mutable_obeyed()->set_epoch(value.obeyed->epoch);
    out.mutable_obeyed()->set_version(value.obeyed->version);
    out.mutable_obeyed()->set_epoch_id(value.obeyed->epoch_id);
  }
  out.set_probe_port(value.probe_port);
  out.set_protocol(kWorkerProtocol);
  return out;
}

StatusOr<Registration> FromProto(const v1::Register& value,
                                 std::string_view path) {
  FieldChecker check(path);
  Registration out;
  NodeInfo& node = out.node;
  check.NodeName("node", value.node());
  check.Require(value.incarnation().counter() > 0, "incarnation.counter",
                "must be 1 or more");
  check.Text("boot_id", value.boot_id(), 64);
  check.Text("hostname", value.hostname(), 255);
  check.Text("version", value.version(), 128);
  check.Text("address", value.address(), 64);
  check.Require(IsIpAddress(value.address()), "address",
                Quote(value.address()) + " is not an IP address");
  check.Text("http_address", value.http_address(), 300);
  check.Require(
      value.http_address().empty() || ParseHostPort(value.http_address()).ok(),
      "http_address", Quote(value.http_address()) + " is not host:port");
  check.Take(FromProto(value.capacity(), check.At("capacity")), &node.capacity);
  check.Count("gpus", value.gpus_size(), 4096);
  for (int i = 0; check.ok() && i < value.gpus_size(); ++i) {
    check.Take(FromProto(value.gpus(i), check.At("gpus", i)),
               &node.gpus.emplace_back());
  }
  check.Require(value.pool().empty() || IsPoolName(value.pool()), "pool",
                Quote(value.pool()) + " is not [a-z0-9-]{1,63}");
  check.Count("gangs", value.gangs_size(), kMaxGangs);
  for (int i = 0; check.ok() && i < value.gangs_size(); ++i) {
    check.Take(FromProto(value.gangs(i), check.At("gangs", i)),
               &out.gangs.emplace_back());
  }
  check.Bytes("limits_message", value.limits_message(), kMaxReportText);
  check.Text("container_engine", value.container_engine(), 128);
  if (value.has_certificate_end_time()) {
    check.Take(FromProto(value.certificate_end_time(),
                         check.At("certificate_end_time")),
               &node.certificate_end_time.emplace());
  }
  check.Count("work_jobs", value.work_jobs_size(), kMaxWorkJobs);
  for (const std::string& uid : value.work_jobs()) {
    check.Text("work_jobs", uid, 64);
  }
  if (value.has_obeyed()) {
    const v1::StorePoint& obeyed = value.obeyed();
    check.Require(IsHistory(obeyed.history()), "obeyed.history",
                  Quote(obeyed.history()) + " is not 32 hex digits");
    check.Number("obeyed.version", obeyed.version(), 0, 1e18);
    check.Require(obeyed.epoch_id().empty() || IsHistory(obeyed.epoch_id()),
                  "obeyed.epoch_id",
                  Quote(obeyed.epoch_id()) + " is not 32 hex digits");
    out.obeyed = {obeyed.history(), obeyed.epoch(), obeyed.version(),
                  obeyed.epoch_id()};
  }
  check.Range("probe_port", value.probe_port(), 0, 65535);
  if (!check.ok()) return check.status();
  out.probe_port = value.probe_port();
  out.work_jobs = {value.work_jobs().begin(), value.work_jobs().end()};
  node.limits_message = value.limits_message();
  node.container_engine = value.container_engine();
  node.name = value.node();
  node.incarnation = {value.incarnation().counter(),
                      value.incarnation().nonce()};
  node.boot_id = value.boot_id();
  node.hostname = value.hostname();
  node.version = value.version();
  node.address = value.address();
  node.http_address = value.http_address();
  node.http_tls = value.http_tls();
  node.limits_enforced = value.limits_enforced();
  if (!value.pool().empty()) node.pool = value.pool();
  return out;
}

v1::GangStatus ToProto(const GangStatus& value) {
  v1::GangStatus out;
  out.set_job(value.job);
  out.set_job_uid(value.job_uid);
  out.set_generation(value.generation);
  out.set_phase(ToProto(value.phase));
  if (value.refusal != Cause{}) {
    *out.mutable_refusal() = ToProto(value.refusal);
  }
  for (const int32_t port : value.ports) out.add_ports(port);
  out.set_master_port(value.master_port);
  for (const RankStatus& rank : value.ranks) *out.add_ranks() = ToProto(rank);
  if (value.checkpoint) *out.mutable_checkpoint() = ToProto(*value.checkpoint);
  out.mutable_artifacts()->insert(value.artifacts.begin(),
                                  value.artifacts.end());
  for (const RankEvent& event : value.events) {
    *out.add_events() = EventToProto(event);
  }
  if (value.resumed_step) out.set_resumed_step(*value.resumed_step);
  out.set_directive_done(value.directive_done);
  for (const TaskPreparation& preparation : value.preparations) {
    *out.add_preparations() = ToProto(preparation);
  }
  out.mutable_service_ports()->insert(value.service_ports.begin(),
                                      value.service_ports.end());
  for (const OutputFile& file : value.outputs) {
    *out.add_outputs() = ToProto(file);
  }
  for (const ImageContent& image : value.images) {
    *out.add_images() = ToProto(image);
  }
  out.set_reduction_plan(value.reduction_plan);
  out.set_output_identity(value.output_identity);
  for (const WorkDirectory& work : value.work) *out.add_work() = ToProto(work);
  for (const LostPeer& lost : value.lost_peers) {
    v1::LostPeer* peer = out.add_lost_peers();
    peer->set_rank(lost.rank);
    peer->set_peer(lost.peer);
    peer->set_error(lost.error);
  }
  return out;
}

StatusOr<GangStatus> FromProto(const v1::GangStatus& value,
                               std::string_view path) {
  FieldChecker check(path);
  GangStatus out;
  CheckGang(value.job(), value.generation(), &check);
  check.Text("job_uid", value.job_uid(), 64);
  check.Take(FromProto(value.phase(), check.At("phase")), &out.phase);
  check.Take(FromProto(value.refusal(), check.At("refusal")), &out.refusal);
  check.Count("ports", value.ports_size(), kMaxRanks);
  for (const int32_t port : value.ports()) check.Range("ports", port, 1, 65535);
  check.Range("master_port", value.master_port(), 0, 65535);
  check.Count("ranks", value.ranks_size(), kMaxRanks);
  for (int i = 0; check.ok() && i < value.ranks_size(); ++i) {
    check.Take(FromProto(value.ranks(i), check.At("ranks", i)),
               &out.ranks.emplace_back());
  }
  if (value.has_checkpoint()) {
    check.Take(FromProto(value.checkpoint(), check.At("checkpoint")),
               &out.checkpoint.emplace());
  }
  check.Count("artifacts", value.artifacts_size(), kMaxArtifacts);
  for (const auto& [name, file] : value.artifacts()) {
    check.Text("artifacts", name, 64);
    check.Bytes("artifacts", file, 4096);
  }
  check.Count("events", value.events_size(), kMaxGangEvents);
  for (int i = 0; check.ok() && i < value.events_size(); ++i) {
    check.Take(ParseEvent(value.events(i), check.At("events", i)),
               &out.events.emplace_back());
  }
  check.Range("resumed_step", value.resumed_step(), -1, kMaxExact);
  check.Range("directive_done", value.directive_done(), 0, 4095);
  check.Count("preparations", value.preparations_size(), kMaxRanks);
  for (int i = 0; check.ok() && i < value.preparations_size(); ++i) {
    check.Take(FromProto(value.preparations(i), check.At("preparations", i)),
               &out.preparations.emplace_back());
  }
  check.Count("service_ports", value.service_ports_size(), 256);
  for (const auto& [name, port] : value.service_ports()) {
    check.Text("service_ports", name, 64);
    check.Range("service_ports", port, 1, 65535);
  }
  check.Count("outputs", value.outputs_size(), kMaxOutputs);
  for (int i = 0; check.ok() && i < value.outputs_size(); ++i) {
    check.Take(FromProto(value.outputs(i), check.At("outputs", i)),
               &out.outputs.emplace_back());
  }
  check.Count("images", value.images_size(), kMaxImages);
  for (int i = 0; check.ok() && i < value.images_size(); ++i) {
    check.Take(FromProto(value.images(i), check.At("images", i)),
               &out.images.emplace_back());
    check.Require(!out.images.back().id.empty(), "images", "has no id");
  }
  check.Text("reduction_plan", value.reduction_plan(), kMaxReductionPlan);
  check.Text("output_identity", value.output_identity(), kMaxOutputIdentity);
  // For people only: a wrong one must not cost the rest of the report.
  for (int i = 0; i < value.work_size(); ++i) {
    const auto work = FromProto(value.work(i), check.At("work", i));
    if (!work.ok() || value.work_size() > kMaxRanks) {
      out.work.clear();
      break;
    }
    out.work.push_back(*work);
  }
  check.Count("lost_peers", value.lost_peers_size(), kMaxRanks);
  for (const v1::LostPeer& lost : value.lost_peers()) {
    check.Range("lost_peers.rank", lost.rank(), 0, kMaxRanks - 1);
    check.Range("lost_peers.peer", lost.peer(), 0, kMaxRanks - 1);
    check.Bytes("lost_peers.error", lost.error(), kMaxLostPeerError);
    out.lost_peers.push_back({lost.rank(), lost.peer(), lost.error()});
  }
  if (!check.ok()) return check.status();
  out.output_identity = value.output_identity();
  out.reduction_plan = value.reduction_plan();
  out.service_ports = {value.service_ports().begin(),
                       value.service_ports().end()};
  out.job = value.job();
  out.job_uid = value.job_uid();
  out.generation = value.generation();
  out.ports = {value.ports().begin(), value.ports().end()};
  out.master_port = value.master_port();
  out.artifacts = {value.artifacts().begin(), value.artifacts().end()};
  if (value.has_resumed_step()) out.resumed_step = value.resumed_step();
  out.directive_done = value.directive_done();
  return out;
}

v1::Heartbeat ToProto(const NodeHeartbeat& value) {
  v1::Heartbeat out;
  out.set_sequence(value.sequence);
  for (const GangProgress& gang : value.gangs) {
    v1::GangProgress* proto = out.add_gangs();
    proto->set_job(gang.job);
    proto->set_generation(gang.generation);
    for (const RankStatus& rank : gang.ranks) {
      v1::RankStatus* status = proto->add_ranks();
      status->set_rank(rank.rank);
      *status->mutable_progress() = ToProto(rank.progress);
      *status->mutable_usage() = ToProto(rank.usage);
    }
  }
  out.set_cpu_utilization(value.readings.cpu_utilization);
  out.set_memory_available_bytes(value.readings.memory_available_bytes);
  for (const GpuUsage& gpu : value.readings.gpus) {
    *out.add_gpus() = ToProto(gpu);
  }
  if (value.readings.send_time) {
    *out.mutable_send_time() = ToProto(*value.readings.send_time);
  }
  for (const GpuError& error : value.readings.gpu_errors) {
    v1::GpuError* proto = out.add_gpu_errors();
    proto->set_index(error.index);
    proto->set_xid(error.xid);
  }
  if (value.readings.round_trip) {
    *out.mutable_round_trip() = ToProto(*value.readings.round_trip);
  }
  return out;
}

StatusOr<NodeHeartbeat> FromProto(const v1::Heartbeat& value,
                                  std::string_view path) {
  FieldChecker check(path);
  NodeHeartbeat out;
  check.Count("gangs", value.gangs_size(), kMaxGangs);
  for (int i = 0; check.ok() && i < value.gangs_size(); ++i) {
    check.Take(ParseProgress(value.gangs(i), check.At("gangs", i)),
               &out.gangs.emplace_back());
  }
  check.Number("cpu_utilization", value.cpu_utilization(), 0, 1);
  check.Range("memory_available_bytes", value.memory_available_bytes(), 0,
              INT64_MAX);
  check.Count("gpus", value.gpus_size(), 4096);
  for (int i = 0; check.ok() && i < value.gpus_size(); ++i) {
    check.Take(FromProto(value.gpus(i), check.At("gpus", i)),
               &out.readings.gpus.emplace_back());
  }
  if (value.has_send_time()) {
    check.Take(FromProto(value.send_time(), check.At("send_time")),
               &out.readings.send_time.emplace());
  }
  if (value.has_round_trip()) {
    check.Take(FromProto(value.round_trip(), check.At("round_trip")),
               &out.readings.round_trip.emplace());
  }
  check.Count("gpu_errors", value.gpu_errors_size(), kMaxGpuErrors);
  for (const v1::GpuError& error : value.gpu_errors()) {
    check.Range("gpu_errors.index", error.index(), 0, 4095);
    check.Range("gpu_errors.xid", error.xid(), 0, 100'000);
    out.readings.gpu_errors.push_back({error.index(), error.xid()});
  }
  if (!check.ok()) return check.status();
  out.sequence = value.sequence();
  out.readings.cpu_utilization = value.cpu_utilization();
  out.readings.memory_available_bytes = value.memory_available_bytes();
  return out;
}

v1::LogChunk ToProto(const LogPiece& value) {
  v1::LogChunk out;
  out.set_job(value.job);
  out.set_job_uid(value.job_uid);
  out.set_generation(value.generation);
  out.set_rank(value.rank);
  out.set_offset(value.offset);
  out.set_data(value.data);
  out.set_end(value.end);
  return out;
}

StatusOr<LogPiece> FromProto(const v1::LogChunk& value, std::string_view path) {
  FieldChecker check(path);
  CheckGang(value.job(), value.generation(), &check);
  check.Text("job_uid", value.job_uid(), 64);
  check.Range("rank", value.rank(), 0, kMaxRanks - 1);
  check.Require(value.offset() <= uint64_t{1} << 60, "offset",
                "is larger than any log");
  check.Count("data", value.data().size(), kMaxLogChunk);
  if (!check.ok()) return check.status();
  return LogPiece{value.job(),  value.job_uid(), value.generation(),
                  value.rank(), value.offset(),  value.data(),
                  value.end()};
}

v1::RendezvousPut ToRendezvousPut(const RendezvousEntry& value) {
  auto out = ToEntry<v1::RendezvousPut>(value);
  out.set_value(value.value);
  return out;
}

v1::RendezvousGet ToRendezvousGet(const RendezvousEntry& value) {
  return ToEntry<v1::RendezvousGet>(value);
}

v1::RendezvousValue ToRendezvousValue(const RendezvousEntry& value) {
  auto out = ToEntry<v1::RendezvousValue>(value);
  out.set_value(value.value);
  return out;
}

StatusOr<RendezvousEntry> FromProto(const v1::RendezvousPut& value,
                                    std::string_view path) {
  return ParseEntry(value, value.value(), path);
}

StatusOr<RendezvousEntry> FromProto(const v1::RendezvousGet& value,
                                    std::string_view path) {
  return ParseEntry(value, "", path);
}

StatusOr<RendezvousEntry> FromProto(const v1::RendezvousValue& value,
                                    std::string_view path) {
  return ParseEntry(value, value.value(), path);
}

}  // namespace lockstep
