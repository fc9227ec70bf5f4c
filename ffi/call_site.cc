#include "ffi/call_site.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "ffi/hash.h"

namespace pccl {

namespace {

// The call sites of one kin, and how many of them have been numbered.
struct Namesakes {
  std::vector<const CallSite*> unnumbered;  // in order of creation
  int64_t numbered = 0;
};

struct Registry {
  std::mutex mutex;
  std::map<uint64_t, Namesakes> by_kin;
};

// Never destroyed: XLA may drop executables during static destruction.
Registry& TheRegistry() {
  static Registry* registry = new Registry;
  return *registry;
}

void Forget(std::vector<const CallSite*>* sites, const CallSite* site) {
  sites->erase(std::remove(sites->begin(), sites->end(), site), sites->end());
}

// Programs are loaded alike in every process, so the order of creation is too. An executable that
// only one process loads and never runs takes no number, once it is gone.
void Number(const CallSite& site) {
  Registry& registry = TheRegistry();
  std::lock_guard<std::mutex> lock(registry.mutex);
  Namesakes& namesakes = registry.by_kin[site.kin];
  for (const CallSite* namesake : namesakes.unnumbered) namesake->number = namesakes.numbered++;
  namesakes.unnumbered.clear();
}

}  // namespace

CallSite::CallSite() = default;

// Freeing is collective by the letter, but no MPI waits in it.
CallSite::~CallSite() {
  for (Channel& channel : channels) {
    if (channel.communicator != 0) world->mpi->FreeCommunicator(channel.communicator);
  }
  Registry& registry = TheRegistry();
  std::lock_guard<std::mutex> lock(registry.mutex);
  const auto it = registry.by_kin.find(kin);
  if (it != registry.by_kin.end()) Forget(&it->second.unnumbered, this);
}

uint64_t CallSite::NextOccasion(int64_t group) const {
  if (ordered()) return ++channel(group)->executions;
  if (number < 0) Number(*this);
  uint64_t key = Mix(kin, static_cast<uint64_t>(number));
  key = Mix(key, static_cast<uint64_t>(group));
  return Mix(key, channel(group)->executions++);
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
  if (!processes.empty() && processes.size() != members.size()) return label + ": malformed group";
  const int64_t me = world == nullptr ? 0 : world->process;
  const char* check = std::getenv("PCCL_CHECK");
  Channel channel;
  channel.check_always = check != nullptr && std::strcmp(check, "1") == 0;
  for (size_t begin = 0; begin < members.size(); begin += n) {
    const auto first = processes.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto last = first + static_cast<std::ptrdiff_t>(n);
    teams.emplace_back(
        processes.empty() ? std::vector<int64_t>(n, me) : std::vector<int64_t>(first, last), me);
    channels.push_back(channel);
    if (!teams.back().one_process() && world == nullptr) {
      return label + ": spans several processes, but pccl_jax.init() has not been called";
    }
  }
  // Programs of some of the processes must not shift the numbers of those that all run.
  const std::set<int64_t> all(processes.begin(), processes.end());
  kin = HashOf(std::vector<int64_t>(all.begin(), all.end()), static_cast<uint64_t>(id));
  for (const auto* facts : {&members, &places, &processes}) digest = HashOf(*facts, digest);
  Registry& registry = TheRegistry();
  std::lock_guard<std::mutex> lock(registry.mutex);
  registry.by_kin[kin].unnumbered.push_back(this);
  return "";
}

}  // namespace pccl
