#include "ffi/world.h"

#include <mutex>
#include <numeric>
#include <utility>

#include "ffi/control.h"
#include "ffi/progress.h"
#include "ffi/shared/board.h"

namespace pccl {
namespace {

struct Worlds {
  std::mutex mutex;
  std::map<int64_t, WorldPtr> by_id;
  int64_t last_id = 0;
};

// Never destroyed: XLA's threads may outlive static destruction.
Worlds& TheWorlds() {
  static Worlds* worlds = new Worlds;
  return *worlds;
}

}  // namespace

World::World() : mail(MakeMail()) {}

// To free a communicator is collective by the letter, but no MPI waits in it.
World::~World() {
  if (shared.Has(process)) ForgetSegment(shared.Of(process));
  if (ProgressHasStopped()) return;  // MPI is ending
  if (ordered && mpi) mpi->FreeCommunicator(comm);
}

bool World::SameHost(int64_t other) const {
  return host_of[static_cast<size_t>(other)] == host_of[static_cast<size_t>(process)];
}

std::vector<int64_t> World::AllProcesses() const {
  std::vector<int64_t> all(host_of.size());
  std::iota(all.begin(), all.end(), 0);
  return all;
}

WorldPtr JoinedWorld() { return FindWorld(0); }

WorldPtr FindWorld(int64_t id) {
  Worlds& worlds = TheWorlds();
  std::lock_guard<std::mutex> lock(worlds.mutex);
  const auto it = worlds.by_id.find(id);
  return it == worlds.by_id.end() ? nullptr : it->second;
}

std::vector<WorldPtr> AllWorlds() {
  Worlds& worlds = TheWorlds();
  std::lock_guard<std::mutex> lock(worlds.mutex);
  std::vector<WorldPtr> all;
  for (const auto& [id, world] : worlds.by_id) all.push_back(world);
  return all;
}

int64_t JoinWorld(std::unique_ptr<World> world) {
  Worlds& worlds = TheWorlds();
  std::lock_guard<std::mutex> lock(worlds.mutex);
  world->id = world->ordered ? ++worlds.last_id : 0;
  // MPI keeps collectives and messages apart, and ranks are in order.
  if (world->ordered) world->channel.communicator = world->comm;
  const int64_t id = world->id;
  worlds.by_id.emplace(id, std::move(world));
  return id;
}

void LeaveWorld(int64_t id) {
  Worlds& worlds = TheWorlds();
  WorldPtr last;  // ends outside of the lock
  std::lock_guard<std::mutex> lock(worlds.mutex);
  const auto it = worlds.by_id.find(id);
  if (it == worlds.by_id.end()) return;
  last = std::move(it->second);
  worlds.by_id.erase(it);
}

}  // namespace pccl
