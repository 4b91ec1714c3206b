#include "worker/rank_link/link_state.h"

#include <algorithm>

namespace lockstep::worker::rank_link {

Status LinkState::Put(const std::string& key, std::string_view value) {
  const auto [it, inserted] = puts_.emplace(key, value);
  if (inserted || it->second == value) return OkStatus();
  return AlreadyExists("rendezvous key '{}' has another value", key);
}

bool LinkState::OnValue(const std::string& key, const std::string& value) {
  const auto asked = asked_.extract(key);
  if (asked.empty()) return false;
  if (!asked.mapped()) values_[key] = value;
  return asked.mapped();
}

void LinkState::Forget(const std::string& key) {
  puts_.erase(key);
  asked_.erase(key);
}

std::optional<std::string> LinkState::Find(const std::string& key) const {
  const auto it = values_.find(key);
  return it == values_.end() ? std::nullopt : std::optional(it->second);
}

void LinkState::OnGo() {
  go_ = true;
  puts_.clear();
}

void LinkState::Join(const v1::RankJoined& joined) {
  joined_ = joined;
  if (joined.recovery() > 0) puts_.clear();
}

void LinkState::BeginAnew() {
  puts_.clear();
  asked_.clear();
  values_.clear();
  joined_.reset();
  go_ = false;
}

void LinkState::Remember(const v1::RankReport& report) {
  if (!report.artifact_name().empty()) {
    artifacts_[report.artifact_name()] = report.artifact_path();
  }
  if (!report.checkpoint_path().empty()) {
    latest_.set_checkpoint_step(report.checkpoint_step());
    latest_.set_checkpoint_path(report.checkpoint_path());
    latest_.set_checkpoint_bytes(report.checkpoint_bytes());
  }
  if (report.has_resumed_step()) {
    latest_.set_has_resumed_step(true);
    latest_.set_resumed_step(report.resumed_step());
  }
  if (!report.reduction_plan().empty()) {
    latest_.set_reduction_plan(report.reduction_plan());
  }
  latest_.set_directive_done(
      std::max(latest_.directive_done(), report.directive_done()));
  if (report.parked() > latest_.parked()) {
    latest_.set_parked(report.parked());
    *latest_.mutable_lost_peers() = report.lost_peers();
  }
  if (!report.failure().empty() && latest_.failure().empty()) {
    latest_.set_failure(report.failure());
    latest_.set_victim(report.victim());
    latest_.set_failure_reason(report.failure_reason());
    *latest_.mutable_lost_peers() = report.lost_peers();
  }
}

std::vector<v1::RankMessage> LinkState::Repeated() const {
  std::vector<v1::RankMessage> messages;
  for (const auto& [key, value] : puts_) {
    v1::RankPut* const put = messages.emplace_back().mutable_put();
    put->set_key(key);
    put->set_value(value);
  }
  for (const auto& [key, tell] : asked_) {
    messages.emplace_back().mutable_get()->set_key(key);
  }
  if (joined_) *messages.emplace_back().mutable_joined() = *joined_;
  for (const auto& [name, path] : artifacts_) {
    v1::RankReport* const report = messages.emplace_back().mutable_report();
    report->set_artifact_name(name);
    report->set_artifact_path(path);
  }
  if (latest_.ByteSizeLong() > 0) {
    *messages.emplace_back().mutable_report() = latest_;
  }
  return messages;
}

}  // namespace lockstep::worker::rank_link
