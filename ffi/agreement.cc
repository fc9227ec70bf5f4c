#include "ffi/agreement.h"

#include <algorithm>
#include <utility>

namespace pccl {
namespace {

int Span(const Team& team) { return static_cast<int>(team.width * team.width); }

}  // namespace

Handshake::Handshake(const World& world, const Team& team, uint64_t key, uint64_t signature,
                     std::string description)
    : world_(world),
      team_(team),
      key_(key),
      signature_(signature),
      description_(std::move(description)) {}

bool Handshake::Advance() {
  if (complete() || !error_.empty()) return false;
  const bool starts = !started_;
  if (starts) SayHello();
  PollControl(world_);
  return (leads() ? HearHellos() : HearVerdict()) || starts;
}

void Handshake::SayHello() {
  started_ = true;
  ControlMessage hello;
  hello.key = key_;
  hello.source = world_.process;
  hello.signature = signature_;
  hello.free_tags = world_.tags.Free(key_, Span(team_));
  SetText(&hello, description_);
  if (leads()) {
    hellos_[world_.process] = hello;
  } else {
    SendControl(world_, team_.processes[0], hello);
  }
}

bool Handshake::HearHellos() {
  ControlMessage hello;
  bool any = false;
  while (TakeControl(world_, key_, ControlKind::kHello, &hello)) {
    hellos_[hello.source] = hello;
    any = true;
    if (hello.signature == hellos_[world_.process].signature) continue;
    error_ = Disagreement(world_.process, description_, hello.source, hello.text);
  }
  if (!error_.empty() || hellos_.size() == team_.processes.size()) Announce();
  return any;
}

void Handshake::Announce() {
  uint64_t free = ~uint64_t{0};
  for (const auto& [process, hello] : hellos_) free &= hello.free_tags;
  if (error_.empty() && free == 0) error_ = "no free message tags: too many collectives";
  int candidate = 0;
  while (error_.empty() && ((free >> candidate) & 1) == 0) ++candidate;
  ControlMessage verdict;
  verdict.key = key_;
  verdict.kind = ControlKind::kVerdict;
  SetText(&verdict, error_);
  if (error_.empty()) {
    tag_ = verdict.tag = world_.tags.Candidate(key_, candidate, Span(team_));
    world_.tags.Use(tag_, Span(team_));
  } else {
    RefuseHellos(world_, key_, error_);
  }
  for (const auto& [process, hello] : hellos_) {
    if (process != world_.process) SendControl(world_, process, verdict);
  }
}

bool Handshake::HearVerdict() {
  ControlMessage verdict;
  if (!TakeControl(world_, key_, ControlKind::kVerdict, &verdict)) return false;
  if (verdict.tag < 0) {
    error_ = verdict.text;
  } else {
    tag_ = verdict.tag;
    world_.tags.Use(tag_, Span(team_));
  }
  return true;
}

std::vector<int64_t> Handshake::Awaited() const {
  if (!leads()) return {team_.processes[0]};
  std::vector<int64_t> awaited;
  for (const int64_t process : team_.processes) {
    if (hellos_.count(process) == 0) awaited.push_back(process);
  }
  return awaited;
}

NeighbourCheck::NeighbourCheck(const World& world, const Team& team, uint64_t key,
                               uint64_t signature, std::string description)
    : world_(world),
      team_(team),
      key_(key),
      signature_(signature),
      description_(std::move(description)) {}

int64_t NeighbourCheck::Neighbour(size_t steps) const {
  const std::vector<int64_t>& all = team_.processes;
  const auto me = std::find(all.begin(), all.end(), world_.process) - all.begin();
  return all[(static_cast<size_t>(me) + steps) % all.size()];
}

bool NeighbourCheck::Advance() {
  if (complete_ || !error_.empty()) return false;
  const bool starts = !started_;
  ControlMessage hello;
  if (starts) {
    started_ = true;
    hello.key = key_;
    hello.kind = ControlKind::kHello;
    hello.signature = signature_;
    SetText(&hello, description_);
    SendControl(world_, Neighbour(1), hello);
  }
  PollControl(world_);
  if (!TakeControl(world_, key_, ControlKind::kHello, &hello)) return starts;
  if (hello.signature == signature_) {
    complete_ = true;
  } else {
    error_ = Disagreement(world_.process, description_, hello.source, hello.text);
  }
  return true;
}

// Executions may overlap, if at all, with those that threads of the program have just started.
int NeighbourCheck::first_tag() const {
  const auto tags = static_cast<uint64_t>(world_.tags.largest - kFirstDataTag);
  return kFirstDataTag + static_cast<int>(key_ % tags);
}

std::vector<int64_t> NeighbourCheck::Awaited() const {
  return {Neighbour(team_.processes.size() - 1)};
}

}  // namespace pccl
