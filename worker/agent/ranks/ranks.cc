#include "worker/agent/ranks/ranks.h"

#include <algorithm>
#include <utility>

#include "common/base/fault_point.h"
#include "common/base/logging.h"
#include "worker/agent/ranks/container_rank.h"
#include "worker/agent/ranks/rank_adoption.h"
#include "worker/agent/ranks/rank_session.h"

namespace lockstep::worker::agent {

Ranks::Ranks(const Parts& parts, RankHooks hooks,
             std::function<void(const v1::WorkerMessage&)> send)
    : parts_(parts),
      hooks_(std::move(hooks)),
      table_(parts.loop, parts.core, parts.store),
      ports_([this] { return supervisor_.ShimPids(); },
             [this](const RankRef& ref) { return table_.HasEnded(ref); }),
      cgroups_(parts.cgroups),
      links_(parts.setup, parts.loop, parts.core, std::move(send)),
      logs_(LogShipperOptions(), parts.files),
      sampler_(
          parts.loop, parts.files, &table_,
          [this](const RankRef& ref) { return supervisor_.ShimPid(ref); },
          [this](const RankRef& ref) { return links_.HasNoProcess(ref); },
          parts.options->first_sign),
      // An ended rank may leave a container.
      exits_({parts.loop, parts.core, &table_, &sampler_, &ports_, &cgroups_,
              &logs_},
             [this] { parts_.containers->SweepLater(); }),
      supervisor_(parts.loop, parts.options->shim_program,
                  parts.setup->node.boot_id, this),
      fences_(parts.setup, parts.loop, parts.files, parts.core,
              [this](const GangKey& key, int64_t until) {
                for (const RankRef& ref : table_.OfGang(key)) {
                  supervisor_.Renew(ref, until);
                }
              }),
      starter_(AllParts(), &hooks_, parts.files),
      restarts_(AllParts(), &hooks_, parts.files, &starter_),
      evidence_(
          {parts.setup, &parts.options->stack_tools, parts.loop, &table_,
           &sampler_, &cgroups_, parts.gpus, parts.files},
          [this](const RankRef& ref) { return supervisor_.ShimPid(ref); },
          [this](uint64_t stream, const EvidenceAnswer& answer) {
            hooks_.answer(stream, answer);
          }) {}

RankParts Ranks::AllParts() {
  RankParts parts;
  parts.setup = parts_.setup;
  parts.options = parts_.options;
  parts.loop = parts_.loop;
  parts.core = parts_.core;
  parts.store = parts_.store;
  parts.containers = parts_.containers;
  parts.work = parts_.work;
  parts.table = &table_;
  parts.sampler = &sampler_;
  parts.ports = &ports_;
  parts.cgroups = &cgroups_;
  parts.links = &links_;
  parts.logs = &logs_;
  parts.exits = &exits_;
  parts.supervisor = &supervisor_;
  parts.fences = &fences_;
  return parts;
}

TaskReading Ranks::ReadingOf(const RankRef& ref, const Rank& rank) const {
  TaskReading reading;
  reading.job = ref.gang.job;
  reading.role = Name(rank.type);
  reading.index = rank.index;
  reading.rank = ref.rank;
  reading.chief = ref.rank == 0;
  reading.restarts = rank.attempts_before;
  reading.ended = rank.ended;
  reading.log = {logs_.BytesSent(ref), logs_.BytesDropped(ref),
                 logs_.Gaps(ref)};
  reading.gpus = rank.gpus;
  sampler_.AddTo(ref, &reading);
  return reading;
}

std::vector<TaskReading> Ranks::Readings() const {
  std::vector<TaskReading> readings;
  for (const auto& [ref, rank] : table_.all()) {
    readings.push_back(ReadingOf(ref, rank));
  }
  return readings;
}

void Ranks::Adopt(const TaskStore::Found& found, Removal* removal) {
  RankAdoption(AllParts(), &hooks_, parts_.files, removal).Adopt(found);
  warm()->Clear();
}

void Ranks::Start(const RankRef& ref, std::set<GangKey>* begun) {
  if (restarts_.IsRestart(ref)) return restarts_.Restart(ref);
  if (begun->insert(ref.gang).second) starter_.BeginGang(ref.gang);
  starter_.Start(ref);
}

Status Ranks::StartSession(const RankRef& ref, const SessionRequest& request,
                           const std::vector<int>& fds) {
  LOCKSTEP_RETURN_IF_ERROR(ProcessOf(ref).status());
  LOCKSTEP_ASSIGN_OR_RETURN(const task::ShimRequest shim,
                            ShimRequestOf(request, table_.all().at(ref).paths,
                                          parts_.containers->engine().get()));
  return supervisor_.StartSession(ref, shim, fds);
}

StatusOr<pid_t> Ranks::ProcessOf(const RankRef& ref) const {
  const auto shim = supervisor_.ShimPid(ref);
  if (!table_.all().contains(ref) || table_.HasEnded(ref) || !shim) {
    return FailedPrecondition("{} does not run here", Describe(ref));
  }
  return *shim;
}

void Ranks::WatchPorts() {
  const std::vector<TakenPort> found = ports_.Watch();
  if (found.empty()) return;
  parts_.core->Tell([&](AgentCore* core, Actions* out) {
    for (const TakenPort& taken : found) {
      RankNews news;
      news.event_reason = Reason::kPortTaken;
      news.event = fmt::format(
          "port {}, leased to this task, is taken: {}, which does not belong "
          "to the task, listens on it",
          taken.port, taken.holder);
      LOG_WARN("{}: {}", Describe(taken.rank), news.event);
      core->OnRankNews(taken.rank.gang, taken.rank.rank, news,
                       parts_.loop->Now(), out);
    }
  });
}

std::string Ranks::Forget(const GangKey& key) {
  std::string uid;
  for (const RankRef& ref : table_.OfGang(key)) {
    links_.Forget(ref);
    // Logs of a gang that its store does not know are not answered before.
    logs_.SendAgain(ref);
    uid = table_.Get(ref).job_uid;
  }
  links_.ForgetGang(key);
  forgotten_[key] = parts_.loop->Now().mono;
  return uid;
}

std::vector<GangKey> Ranks::TakeForgotten(
    const std::function<bool(const GangKey&)>& in_use,
    std::vector<TaskReading>* last) {
  std::vector<GangKey> gone;
  const MonoTime now = parts_.loop->Now().mono;
  std::erase_if(forgotten_, [&](const auto& entry) {
    const GangKey& key = entry.first;
    if (parts_.core->Find(key) != nullptr) return true;  // It came back.
    if (in_use(key)) return false;
    const std::vector<RankRef> refs = table_.OfGang(key);
    const bool shipped =
        std::all_of(refs.begin(), refs.end(),
                    [&](const RankRef& ref) { return logs_.Done(ref); });
    if (!shipped && now - entry.second < parts_.options->forget_after) {
      return false;
    }
    for (const RankRef& ref : refs) {
      last->push_back(ReadingOf(ref, table_.Get(ref)));
      logs_.Remove(ref);
      sampler_.Erase(ref);
      ports_.Erase(ref);
      table_.Erase(ref);
    }
    gone.push_back(key);
    return true;
  });
  return gone;
}

void Ranks::OnRankStarted(const RankRef& ref, int64_t pid) {
  (void)FaultPoint("worker.after_start");
  parts_.core->Tell([&](AgentCore* core, Actions* out) {
    core->OnRankStarted(ref.gang, ref.rank, pid, out);
    hooks_.started(ref);
    LOG_INFO("{}: {} as process {}", Describe(ref),
             out->empty() ? "goes on" : "started", pid);
  });
}

void Ranks::OnRankExited(const RankRef& ref, const task::ExitRecord& record) {
  exits_.OnExited(ref, record);
}

void Ranks::RemoveContainer(const task::TaskRecord& record,
                            std::function<void()> done) {
  parts_.containers->Remove(record, std::move(done));
}

}  // namespace lockstep::worker::agent
