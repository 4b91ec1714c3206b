#include "worker/agent/link/rank_links.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "common/base/file.h"
#include "common/base/hex.h"
#include "common/base/logging.h"
#include "common/base/random.h"
#include "worker/agent/link/rank_news.h"
#include "worker/agent/link/rank_welcome.h"
#include "worker/rank_link/client.h"

namespace lockstep::worker::agent {
namespace {

using rank_link::RankKey;
using rank_link::RankLinkServer;

RankKey KeyOf(const RankRef& ref) {
  return {ref.gang.job, ref.gang.generation, ref.rank};
}

RankRef RefOf(const RankKey& key) {
  return {{key.job, key.generation}, key.rank};
}

constexpr char kSecondName[] = "sock";

}  // namespace

RankLinks::RankLinks(const DaemonSetup* setup, EventLoop* loop,
                     CoreRunner* core,
                     std::function<void(const v1::WorkerMessage&)> send)
    : setup_(setup),
      loop_(loop),
      core_(core),
      rendezvous_(std::move(send),
                  [this](const RankRef& ref, const std::string& name,
                         const std::string& value) {
                    server_->SendValue(KeyOf(ref), name, value);
                  }) {}

RankLinks::~RankLinks() {
  if (server_ == nullptr) return;
  loop_->Unwatch(server_->fd());
  if (!directory_.empty()) ::unlink(ProgramPath().c_str());
}

Status RankLinks::Listen() {
  LOCKSTEP_ASSIGN_OR_RETURN(
      server_,
      RankLinkServer::Listen(JoinPath(setup_->runtime_dir, "link.sock"), this));
  const std::string directory = JoinPath(setup_->runtime_dir, "link");
  LOCKSTEP_RETURN_IF_ERROR(RealFileSystem()->MakeDirs(directory, 0711));
  const std::string second = JoinPath(directory, kSecondName);
  ::unlink(second.c_str());  // Of the daemon before.
  if (::link(path().c_str(), second.c_str()) == 0) {
    directory_ = directory;
  } else {
    LOG_WARN("{}: {}: ranks in containers cannot join", second,
             std::strerror(errno));
  }
  return OkStatus();
}

std::string RankLinks::ProgramPath() const {
  return directory_.empty() ? path() : JoinPath(directory_, kSecondName);
}

Status RankLinks::Start() {
  return loop_->Watch(server_->fd(), [this] { server_->Dispatch(); });
}

void RankLinks::MakeNonces(const GangKey& key,
                           const std::vector<RankStatus>& ranks) {
  for (const RankStatus& rank : ranks) {
    nonces_[key][rank.rank] = RandomBytes(32);
  }
}

void RankLinks::SetNonces(const GangKey& key,
                          std::map<int32_t, std::string> nonces) {
  nonces_[key] = std::move(nonces);
}

std::string RankLinks::LinkFileOf(const RankRef& ref) {
  return rank_link::LinkFileText(ProgramPath(), ToHex(NonceOf(ref)));
}

void RankLinks::Expect(const RankRef& ref, const std::string& page) {
  const LocalGang* gang = core_->Find(ref.gang);
  if (gang == nullptr || !gang->assignment.spec || !gang->assignment.cluster) {
    return;
  }
  const LocalTask* task = TaskOf(*gang->assignment.spec, ref.rank);
  const auto& nonces = nonces_[ref.gang];
  const auto nonce = nonces.find(ref.rank);
  if (task == nullptr || nonce == nonces.end()) return;
  const bool native = IsNative(gang->assignment);
  if (native) rendezvous_.Raise(ref.gang, gang->assignment.recovery);
  server_->Expect(KeyOf(ref), native ? nonce->second : ToHex(nonce->second),
                  OwnerId(setup_->user),
                  MakeWelcome(gang->assignment, *task, ref.rank,
                              setup_->node.address, page));
}

void RankLinks::Tell(const Action& action) {
  const RankKey key = KeyOf({action.gang, action.rank});
  switch (action.kind) {
    case Action::Kind::kGo:
      server_->SendGo(key);
      break;
    case Action::Kind::kAbort:
      server_->SendAbort(key, action.message);
      break;
    case Action::Kind::kDirective:
      server_->SendDirective(key, action.directive.id,
                             action.directive.kind == DirectiveKind::kStop
                                 ? v1::RankDirective::STOP
                                 : v1::RankDirective::CHECKPOINT);
      break;
    // Ranks do not receive these, or receive them with their Welcome.
    case Action::Kind::kPrepare:
    case Action::Kind::kCheckOutput:
    case Action::Kind::kStartRank:
    case Action::Kind::kRecover:
    case Action::Kind::kCapture:
    case Action::Kind::kKillTree:
    case Action::Kind::kRelease:
    case Action::Kind::kReport:
    case Action::Kind::kForget:
      break;
  }
}

bool RankLinks::HasNoProcess(const RankRef& ref) const {
  const LocalGang* gang = core_->Find(ref.gang);
  return gang != nullptr && !IsNative(gang->assignment) &&
         !server_->connected(KeyOf(ref));
}

void RankLinks::Forget(const RankRef& ref) { server_->Forget(KeyOf(ref)); }

void RankLinks::ForgetGang(const GangKey& key) {
  nonces_.erase(key);
  rendezvous_.Forget(key);
}

void RankLinks::OnPut(const RankKey& key, const std::string& name,
                      const std::string& value) {
  const RankRef ref = RefOf(key);
  if (core_->Find(ref.gang) != nullptr) rendezvous_.Put(ref, name, value);
}

void RankLinks::OnGet(const RankKey& key, const std::string& name) {
  const RankRef ref = RefOf(key);
  if (core_->Find(ref.gang) != nullptr) rendezvous_.Get(ref, name);
}

void RankLinks::OnJoined(const RankKey& key, const v1::RankJoined& joined) {
  const RankRef ref = RefOf(key);
  const LocalGang* gang = core_->Find(ref.gang);
  // A program forms by itself.
  if (gang == nullptr ||
      !(IsNative(gang->assignment) || joined.recoverable())) {
    return;
  }
  core_->Tell([&](AgentCore* core, Actions* out) {
    core->OnRankJoined(
        ref.gang, ref.rank,
        {joined.recovery(), joined.recoverable(), joined.elastic()}, out);
  });
}

void RankLinks::OnReport(const RankKey& key, const v1::RankReport& report) {
  const RankRef ref = RefOf(key);
  const RankNews news = NewsOf(report);
  core_->Tell([&](AgentCore* core, Actions* out) {
    core->OnRankNews(ref.gang, ref.rank, news, loop_->Now(), out);
  });
}

}  // namespace lockstep::worker::agent
