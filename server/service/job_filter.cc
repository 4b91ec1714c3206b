#include "server/service/job_filter.h"

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

using Field = JobFilterTerm::Field;
using Op = JobFilterTerm::Op;
using Kind = JobFilterNode::Kind;

// nullopt: the job has none.
std::optional<int64_t> NumberOf(Field field, const Job& job) {
  const auto nanos = [](const std::optional<WallTime>& time) {
    return time ? std::optional(ToUnixNanos(*time)) : std::nullopt;
  };
  switch (field) {
    case Field::kCreateTime:
      return ToUnixNanos(job.create_time);
    case Field::kStartTime:
      return nanos(job.start_time);
    case Field::kEndTime:
      return nanos(job.end_time);
    case Field::kPriority:
      return job.spec.priority;
    default:
      return std::nullopt;
  }
}

// Any of them counts; none: the job has no such text.
std::vector<std::string_view> TextsOf(const JobFilterTerm& term,
                                      const Job& job) {
  const auto unless_empty = [](std::string_view text) {
    return text.empty() ? std::vector<std::string_view>()
                        : std::vector<std::string_view>{text};
  };
  switch (term.field) {
    case Field::kJobId:
      return {job.spec.name};
    case Field::kState:
      return {Name(job.state), Name(TrainingStateOf(job))};
    case Field::kOwner:
      return unless_empty(job.owner);
    case Field::kKind:
      return {Name(job.spec.kind)};
    case Field::kPool:
      return unless_empty(job.spec.pool);
    case Field::kRegion:
      return job.training.get().has_value()
                 ? unless_empty(job.training.get()->training_input.region)
                 : std::vector<std::string_view>();
    case Field::kLabel: {
      const auto label = job.spec.labels.find(term.label);
      if (label == job.spec.labels.end()) return {};
      return {label->second};
    }
    default:
      return {};
  }
}

bool Compares(Op op, int64_t left, int64_t right) {
  switch (op) {
    case Op::kLess:
      return left < right;
    case Op::kLessEqual:
      return left <= right;
    case Op::kGreater:
      return left > right;
    case Op::kGreaterEqual:
      return left >= right;
    default:
      return left == right;
  }
}

bool Holds(const JobFilterTerm& term, const Job& job, WallTime now) {
  if (term.field >= Field::kPriority) {
    const auto number = NumberOf(term.field, job);
    if (!number || term.any) return number.has_value();
    return Compares(term.op, *number,
                    term.ago ? ToUnixNanos(now) - term.number : term.number);
  }
  const std::vector<std::string_view> texts = TextsOf(term, job);
  return std::any_of(texts.begin(), texts.end(), [&](std::string_view text) {
    if (term.any) return true;
    if (term.pattern) return re2::RE2::PartialMatch(text, *term.pattern);
    return term.prefix ? text.starts_with(term.value) : text == term.value;
  });
}

// Labels are what the owner wrote; all else that a filter knows is shown to
// everybody (visibility.cc).
bool IsHidden(Field field) { return field == Field::kLabel; }

// Whether it holds; nullopt: that is not to be known.
std::optional<bool> Holds(const JobFilterNode& node, const Job& job,
                          WallTime now, bool details_hidden) {
  const auto holds = [&](const JobFilterNode& child) {
    return Holds(child, job, now, details_hidden);
  };
  // Of those beside it, one that is `decides` settles what holds.
  const auto any = [&](bool decides) -> std::optional<bool> {
    std::optional<bool> result = !decides;
    for (const JobFilterNode& child : node.children) {
      const std::optional<bool> one = holds(child);
      if (one == decides) return decides;
      if (!one) result = std::nullopt;
    }
    return result;
  };
  switch (node.kind) {
    case Kind::kTerm:
      if (details_hidden && IsHidden(node.term.field)) return std::nullopt;
      return Holds(node.term, job, now) != node.term.negated;
    case Kind::kAnd:
      return any(false);
    case Kind::kOr:
      return any(true);
    case Kind::kNot: {
      const std::optional<bool> child = holds(node.children.at(0));
      return child ? std::optional(!*child) : std::nullopt;
    }
  }
  return false;
}

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
  auto root = ParseJobFilter(text);
  if (!root.ok()) return Annotate(root.status(), "filter");
  filter.root_ = *std::move(root);
  return filter;
}

bool JobFilter::Matches(const Job& job, WallTime now,
                        bool details_hidden) const {
  return !root_ || Holds(*root_, job, now, details_hidden).value_or(false);
}

}  // namespace lockstep
