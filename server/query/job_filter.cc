#include "server/query/job_filter.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "server/query/job_filter_language.h"

namespace lockstep::server {
namespace {

// Returns nullopt if the job has none.
std::optional<int64_t> NumberOf(int field, const Job& job) {
  const auto nanos = [](const std::optional<WallTime>& time) {
    return time ? std::optional(ToUnixNanos(*time)) : std::nullopt;
  };
  switch (field) {
    case job_field::kCreateTime:
      return ToUnixNanos(job.create_time);
    case job_field::kStartTime:
      return nanos(job.start_time);
    case job_field::kEndTime:
      return nanos(job.end_time);
    case job_field::kPriority:
      return job.spec.priority;
    default:
      return std::nullopt;
  }
}

// Returns all texts of the field; any of them may match.
std::vector<std::string_view> TextsOf(const FilterTerm& term, const Job& job) {
  const auto unless_empty = [](std::string_view text) {
    return text.empty() ? std::vector<std::string_view>()
                        : std::vector<std::string_view>{text};
  };
  switch (term.field) {
    case job_field::kJobId:
      return {job.spec.name};
    case job_field::kState:
      return {Name(job.state), Name(TrainingStateOf(job))};
    case job_field::kOwner:
      return unless_empty(job.owner);
    case job_field::kKind:
      return {Name(job.spec.kind)};
    case job_field::kPool:
      return unless_empty(job.spec.pool);
    case job_field::kRegion:
      return job.training.get().has_value()
                 ? unless_empty(job.training.get()->training_input.region)
                 : std::vector<std::string_view>();
    case job_field::kLabel: {
      const auto label = job.spec.labels.find(term.key);
      if (label == job.spec.labels.end()) return {};
      return {label->second};
    }
    default:
      return {};
  }
}

bool Holds(const FilterTerm& term, const Job& job, WallTime now) {
  if (job_field::IsNumber(term.field)) {
    const auto number = NumberOf(term.field, job);
    if (!number || term.any) return number.has_value();
    return Compares(term.op, *number,
                    term.ago ? ToUnixNanos(now) - term.number : term.number);
  }
  const std::vector<std::string_view> texts = TextsOf(term, job);
  return std::any_of(texts.begin(), texts.end(), [&](std::string_view text) {
    if (term.any) return true;
    if (term.pattern) return MatchesPattern(term, text);
    return term.prefix ? text.starts_with(term.text) : text == term.text;
  });
}

// The owner wrote the labels. Every reader may see the other fields
// (visibility.h).
bool IsHidden(int field) { return field == job_field::kLabel; }

}  // namespace

TrainingState TrainingStateOf(const Job& job) {
  TrainingStateInput input;
  input.state = job.state;
  input.has_prepared = job.generation > 0;
  input.has_run = job.start_time.has_value();
  input.outcome = job.outcome;
  return TrainingStateOf(input);
}

StatusOr<JobFilter> JobFilter::Parse(std::string_view text) {
  JobFilter filter;
  auto root = ParseFilter(JobFilterLanguage(), text);
  if (!root.ok()) return Annotate(root.status(), "filter");
  filter.root_ = *std::move(root);
  return filter;
}

bool JobFilter::Matches(const Job& job, WallTime now,
                        bool details_hidden) const {
  if (!root_) return true;
  const auto holds = [&](const FilterTerm& term) -> std::optional<bool> {
    if (details_hidden && IsHidden(term.field)) return std::nullopt;
    return Holds(term, job, now);
  };
  return Evaluate(*root_, holds).value_or(false);
}

}  // namespace lockstep::server
