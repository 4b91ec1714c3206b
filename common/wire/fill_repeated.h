// Lists of values as repeated fields.
#ifndef LOCKSTEP_COMMON_WIRE_FILL_REPEATED_H_
#define LOCKSTEP_COMMON_WIRE_FILL_REPEATED_H_

namespace lockstep {

// Adds to `to` what ToProto makes of each of `from`.
template <typename Proto, typename List>
void FillRepeated(const List& from, Proto* to) {
  for (const auto& value : from) *to->Add() = ToProto(value);
}

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_WIRE_FILL_REPEATED_H_
