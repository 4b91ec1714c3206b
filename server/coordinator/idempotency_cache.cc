#include "server/coordinator/idempotency_cache.h"

namespace lockstep::server {
namespace {

RequestName NameOf(const AnsweredRequest& answer) {
  return {answer.client, answer.id};
}

}  // namespace

size_t IdempotencyCache::BytesOf(const AnsweredRequest& answer) {
  return answer.client.size() + answer.id.size() + answer.method.size() +
         answer.content_hash.size() + answer.response.size();
}

StatusOr<std::optional<std::string>> IdempotencyCache::AnswerTo(
    const RequestKey& request) const {
  if (request.id.empty()) return std::optional<std::string>();
  const AnsweredRequest* const known = Find(request.client, request.id);
  if (known == nullptr) return std::optional<std::string>();
  if (known->method != request.method ||
      known->content_hash != request.content_hash) {
    return WithReason(
        InvalidArgument("request_id {} was used for another request: draw a "
                        "new one for each command",
                        request.id),
        "REQUEST_ID_REUSED");
  }
  return std::optional<std::string>(known->response);
}

const AnsweredRequest* IdempotencyCache::Find(const std::string& client,
                                              const std::string& id) const {
  const auto it = answers_.find({client, id});
  return it == answers_.end() ? nullptr : &it->second;
}

void IdempotencyCache::Trim(const Group& group, size_t most, size_t most_bytes,
                            size_t bytes, std::set<RequestName>* gone) const {
  size_t count = group.ages.size() + 1;
  bytes += group.bytes;
  for (const RequestName& name : *gone) {
    const AnsweredRequest& answer = answers_.at(name);
    if (!group.ages.contains({answer.time, name})) continue;
    --count;
    bytes -= BytesOf(answer);
  }
  for (const auto& [time, name] : group.ages) {
    if (count <= most && bytes <= most_bytes) return;
    if (!gone->insert(name).second) continue;
    --count;
    bytes -= BytesOf(answers_.at(name));
  }
}

std::vector<RequestName> IdempotencyCache::Displaced(
    const AnsweredRequest& next) const {
  const size_t bytes = BytesOf(next);
  std::set<RequestName> gone;
  const auto caller = callers_.find(next.client);
  if (caller != callers_.end()) {
    Trim(caller->second, limits_.of_caller, limits_.bytes_of_caller, bytes,
         &gone);
  }
  Trim(all_, limits_.of_all, limits_.bytes_of_all, bytes, &gone);
  return {gone.begin(), gone.end()};
}

void IdempotencyCache::Add(AnsweredRequest answer) {
  const RequestName name = NameOf(answer);
  Forget(name);
  for (Group* group : {&all_, &callers_[name.client]}) {
    group->ages.insert({answer.time, name});
    group->bytes += BytesOf(answer);
  }
  answers_.emplace(name, std::move(answer));
}

void IdempotencyCache::Forget(const RequestName& name) {
  const auto it = answers_.find(name);
  if (it == answers_.end()) return;
  const auto caller = callers_.find(name.client);
  for (Group* group : {&all_, &caller->second}) {
    group->ages.erase({it->second.time, name});
    group->bytes -= BytesOf(it->second);
  }
  if (caller->second.ages.empty()) callers_.erase(caller);
  answers_.erase(it);
}

void IdempotencyCache::ForgetBefore(WallTime time) {
  while (!all_.ages.empty() && all_.ages.begin()->first < time) {
    Forget(RequestName(all_.ages.begin()->second));
  }
}

std::optional<AnsweredRequest> AnsweredWith(const RequestKey& request,
                                            const std::string& response,
                                            WallTime now) {
  if (request.id.empty()) return std::nullopt;
  AnsweredRequest answered;
  answered.client = request.client;
  answered.id = request.id;
  answered.method = request.method;
  answered.content_hash = request.content_hash;
  answered.response = response;
  answered.time = now;
  return answered;
}

}  // namespace lockstep::server
