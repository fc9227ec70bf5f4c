#include "ffi/gpu/world.h"

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <stdexcept>
#include <utility>

#include "ffi/gpu/nccl_library.h"

namespace pccl::gpu {
namespace {

struct Shared {
  std::mutex mutex;
  std::shared_ptr<const World> world = std::make_shared<World>();
};

// Never destroyed: programs may still run while static objects are.
Shared& TheShared() {
  static Shared* shared = new Shared;
  return *shared;
}

Way Parse(const std::string& name, const std::string& setting) {
  if (name == "nccl") return Way::kNccl;
  if (name == "mpi") return Way::kMpi;
  throw std::runtime_error("got PCCL_GPU_TRANSPORT='" + setting +
                           "', expected auto, nccl, mpi or one for inside of nodes and one for "
                           "between them, e.g. nccl,mpi");
}

void CheckThere(const World& world, Way way) {
  std::string why;
  if (way == Way::kNccl && NcclLibrary::Find(world.nccl_file, &why) == nullptr) {
    throw std::runtime_error(why);
  }
  if (way == Way::kMpi && world.mpi == nullptr) {
    throw std::runtime_error(
        "PCCL_GPU_TRANSPORT asks for MPI, but no MPI program has been joined: start it with "
        "mpiexec "
        "and call pccl_jax.init() first");
  }
}

}  // namespace

int64_t World::DeviceOf(int ordinal) const {
  const auto found = device_of_ordinal.find(ordinal);
  return found == device_of_ordinal.end() ? ordinal : found->second;
}

int64_t World::MostDevices() const {
  int64_t most = 1;
  for (const auto& [device, owner] : owner_of) most = std::max(most, owner.index + 1);
  return most;
}

std::shared_ptr<const World> TheWorld() {
  Shared& shared = TheShared();
  std::lock_guard<std::mutex> lock(shared.mutex);
  return shared.world;
}

void JoinWorld(World world) {
  auto joined = std::make_shared<World>(std::move(world));
  Shared& shared = TheShared();
  std::lock_guard<std::mutex> lock(shared.mutex);
  // The last one stays in use by communicators, and its callback must not be destroyed here.
  new std::shared_ptr<const World>(std::exchange(shared.world, std::move(joined)));
}

Ways ChooseWays(const World& world) {
  const char* text = std::getenv("PCCL_GPU_TRANSPORT");
  const std::string setting = text == nullptr || *text == '\0' ? "auto" : text;
  if (setting == "auto") {
    std::string why;
    if (NcclLibrary::Find(world.nccl_file, &why) != nullptr) return {Way::kNccl, Way::kNccl};
    if (world.mpi == nullptr) throw std::runtime_error(why);
    return {Way::kMpi, Way::kMpi};
  }
  const size_t comma = setting.find(',');
  Ways ways;
  ways.inside = Parse(setting.substr(0, comma), setting);
  ways.between =
      comma == std::string::npos ? ways.inside : Parse(setting.substr(comma + 1), setting);
  CheckThere(world, ways.inside);
  CheckThere(world, ways.between);
  return ways;
}

}  // namespace pccl::gpu
