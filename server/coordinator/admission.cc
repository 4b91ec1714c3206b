#include "server/coordinator/admission.h"

#include <memory>
#include <utility>
#include <vector>

#include "common/base/logging.h"
#include "server/coordinator/snapshot.h"

namespace lockstep::server {
namespace {

void LogAdmitted(const NodeRecord& record, size_t gangs, WallTime now) {
  const NodeInfo& info = record.info;
  if (record.offered) {
    LOG_WARN("node {}: {}", info.name, WaitingForApproval(record));
  }
  LOG_INFO("node {}: registered, start {}, {}, {} gangs", info.name,
           info.incarnation.counter, Describe(info.capacity), gangs);
  if (const auto& end = info.certificate_end_time;
      end && *end - now < kCertificateWarning) {
    LOG_WARN(
        "node {}: the certificate of its daemon ends in {}: issue a new one "
        "and start the daemon again",
        info.name, FormatDuration(*end - now));
  }
}

}  // namespace

StatusOr<bool> Admission::AwaitJudgement(const NodeInfo& info, Arrival* arrival,
                                         Time now) {
  auto& newcomers = parts_.state->nodes.newcomers();
  const auto known = newcomers.find(info.name);
  if (known != newcomers.end()) {
    WaitingNewcomer& waiting = known->second;
    if (!(waiting.newcomer.info.incarnation == info.incarnation)) {
      return Unavailable(
          "node {}: whether another daemon may speak for it is judged just "
          "now: try again",
          info.name);
    }
    // It connected again, which is no more time for the other one.
    waiting.arrival.link->Close(WithReason(
        Unavailable("a later stream of node {} has registered", info.name),
        "STALE_SESSION"));
    waiting.newcomer.info = info;
    waiting.arrival = std::move(*arrival);
    return true;
  }
  const Membership& members = parts_.state->members;
  const NodeEntry* const entry = parts_.state->nodes.Find(info.name);
  const bool connected = entry != nullptr && entry->session;
  if (!connected) {
    LOCKSTEP_RETURN_IF_ERROR(members.CheckBarred(info, now.mono));
    return false;
  }
  if (!members.IsNewcomer(info)) return false;
  newcomers[info.name] = {{info, now.mono}, std::move(*arrival)};
  LOG_INFO(
      "node {}: a daemon of start {} registers from {} while another one's "
      "stream is open",
      info.name, info.incarnation.counter, info.address);
  return true;
}

Status Admission::Register(const NodeInfo& info, Arrival arrival, Time now) {
  LOCKSTEP_ASSIGN_OR_RETURN(const bool waits,
                            AwaitJudgement(info, &arrival, now));
  return waits ? OkStatus() : Admit(info, std::move(arrival), now);
}

Status Admission::Admit(const NodeInfo& info, Arrival arrival, Time now) {
  ClusterState& state = *parts_.state;
  const Member* known = state.members.Find(info.name);
  const bool same_boot =
      known == nullptr || known->info.boot_id == info.boot_id;
  LOCKSTEP_RETURN_IF_ERROR(AdmitMember(info, std::move(arrival.reclaims), now));
  NodeEntry& entry = state.nodes.At(info.name);
  if (entry.session) {
    // A machine that booted reads nothing any more. A daemon that reads this
    // is a copy, and what it runs is started elsewhere.
    entry.session->link->Close(WithReason(
        Aborted("a later stream of node {} has registered", info.name),
        same_boot ? "STALE_SESSION" : "CLONED_NODE"));
  }
  parts_.guard->Obeys(info.name);
  parts_.detector->Forget(info.name);
  const size_t gangs = arrival.gangs.size();
  state.nodes.Open(info, std::move(arrival));
  entry.session->link->SendWelcome();
  if (!same_boot) entry.booted = now.mono;
  for (const auto& [key, gang] : entry.gangs) {
    state.agenda.jobs.insert(gang.job);
    (void)state.jobs.MayWait(info.name, gang);
  }
  parts_.guard->NoteUnknown(info.name, now);
  state.TouchJobsOf(info.name);
  state.agenda.nodes.insert(info.name);
  state.agenda.RoomMade(now.mono);
  LogAdmitted(state.members.Find(info.name)->Record(), gangs, now.wall);
  parts_.reconciler->ReconcileSoon(now);
  return OkStatus();
}

Status Admission::AdmitMember(const NodeInfo& info,
                              std::vector<GpuReclaim> reclaims, Time now) {
  Membership& members = parts_.state->members;
  const Member* known = members.Find(info.name);
  const bool is_new = known == nullptr;
  // The daemon that has the name now is alive: its stream is open and it beats.
  // A newcomer was judged already.
  if (known != nullptr && known->state == NodeState::kReady &&
      info.incarnation.counter < known->info.incarnation.counter &&
      parts_.state->nodes.At(info.name).session) {
    NoteContest(info, now, /*proven=*/false);
  }
  LOCKSTEP_RETURN_IF_ERROR(members.CheckRegister(info));
  const NodeRecord record = members.Registered(info, now.wall);
  const bool news = is_new || !(known->Record() == record);
  Status stored;
  if (news) stored = parts_.committer->CommitNode(record);
  // Its tasks go on, and must be looked after, also while the disk is full.
  if (is_new) LOCKSTEP_RETURN_IF_ERROR(stored);
  LOCKSTEP_RETURN_IF_ERROR(members.Register(info, now, std::move(reclaims)));
  if (news) {
    parts_.state->NoteNode(info.name);
    if (stored.ok()) parts_.state->agenda.unsaved_nodes.erase(info.name);
  }
  return OkStatus();
}

void Admission::NoteContest(const NodeInfo& other, Time now, bool proven) {
  Membership& members = parts_.state->members;
  if (!members.Contest(other, now, proven)) return;
  LOG_WARN("node {}: {}", other.name, members.Find(other.name)->quarantine);
  parts_.state->agenda.capacity_changed = true;
  parts_.state->NoteNode(other.name);
}

void Admission::Judge(const NodeName& node, Time now) {
  auto& newcomers = parts_.state->nodes.newcomers();
  const auto it = newcomers.find(node);
  if (it == newcomers.end()) return;
  Membership& members = parts_.state->members;
  const auto& old = parts_.state->nodes.At(node).session;
  const Judgement judgement =
      members.Judge(it->second.newcomer, old.has_value(), now.mono);
  if (judgement == Judgement::kOpen) return;
  WaitingNewcomer waiting = std::move(it->second);
  newcomers.erase(it);
  const NodeInfo& info = waiting.newcomer.info;
  const std::shared_ptr<WorkerLink> link = waiting.arrival.link;
  if (judgement == Judgement::kRefused) {
    if (waiting.newcomer.other_beat) NoteContest(info, now, /*proven=*/true);
    LOG_WARN("node {}: the daemon on {} ({}) is refused", node, info.hostname,
             info.address);
    link->Close(members.Refusal(info));
    return;
  }
  // The other one is as good as gone: it is no live process of the same start.
  if (old) members.Disconnect(node, old->incarnation, now);
  if (const Status status = Admit(info, std::move(waiting.arrival), now);
      !status.ok()) {
    link->Close(status);
  }
}

void Admission::JudgeAll(Time now) {
  std::vector<NodeName> nodes;
  for (const auto& [node, waiting] : parts_.state->nodes.newcomers()) {
    nodes.push_back(node);
  }
  for (const NodeName& node : nodes) Judge(node, now);
}

}  // namespace lockstep::server
