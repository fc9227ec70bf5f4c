#include "ffi/world.h"

#include <atomic>
#include <numeric>

namespace pccl {
namespace {

std::atomic<const World*> joined{nullptr};

}  // namespace

bool World::SameHost(int64_t other) const {
  return host_of[static_cast<size_t>(other)] == host_of[static_cast<size_t>(process)];
}

std::vector<int64_t> World::AllProcesses() const {
  std::vector<int64_t> all(host_of.size());
  std::iota(all.begin(), all.end(), 0);
  return all;
}

const World* JoinedWorld() { return joined.load(std::memory_order_acquire); }

void JoinWorld(std::unique_ptr<World> world) {
  const World* none = nullptr;
  if (joined.compare_exchange_strong(none, world.get())) world.release();
}

}  // namespace pccl
