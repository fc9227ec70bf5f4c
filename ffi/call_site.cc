#include "ffi/call_site.h"

#include <cstdlib>

namespace pccl {
namespace {

double SecondsFrom(const char* variable, double otherwise) {
  const char* text = std::getenv(variable);
  if (text == nullptr) return otherwise;
  char* end = nullptr;
  const double value = std::strtod(text, &end);
  return end != text && *end == '\0' && value > 0 ? value : otherwise;
}

}  // namespace

Patience Patience::FromEnvironment() {
  Patience patience;
  patience.warn = std::chrono::duration<double>(SecondsFrom("PCCL_WARN_S", 30.0));
  patience.timeout = std::chrono::duration<double>(SecondsFrom("PCCL_TIMEOUT_S", 300.0));
  return patience;
}

CallSite::Seat CallSite::Find(int64_t logical_id) const {
  if (logical_id < 0 || logical_id >= static_cast<int64_t>(seats.size())) return {};
  return seats[static_cast<size_t>(logical_id)];
}

std::string CallSite::Validate() {
  const auto n = static_cast<size_t>(ranks());
  if (members.empty() || members.size() % n != 0 || places.size() != members.size()) {
    return label + ": groups do not match the schedule's " + std::to_string(n) + " ranks";
  }
  for (size_t i = 0; i < members.size(); ++i) {
    const int64_t id = members[i];
    if (id < 0 || places[i] < 0 || places[i] >= static_cast<int64_t>(n)) {
      return label + ": malformed group";
    }
    if (static_cast<size_t>(id) >= seats.size()) seats.resize(static_cast<size_t>(id) + 1);
    seats[static_cast<size_t>(id)] = {static_cast<int64_t>(i / n), static_cast<int64_t>(i % n)};
  }
  return "";
}

}  // namespace pccl
