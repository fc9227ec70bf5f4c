#include "ffi/gpu/connections.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>

#include "ffi/gpu/mpi_communicator.h"
#include "ffi/gpu/nccl_communicator.h"
#include "ffi/gpu/nccl_library.h"
#include "ffi/hash.h"
#include "ffi/threads.h"

namespace pccl::gpu {
namespace {

using Key = std::tuple<Way, std::vector<int64_t>, int64_t>;
using Seconds = std::chrono::duration<double>;

struct Cache {
  std::mutex mutex;
  std::map<Key, std::shared_ptr<Communicator>> communicators;
  // Ids of communicators within one process, by name.
  std::map<std::string, std::string> ids;
  std::condition_variable new_id;
  // Why NCCL's communicators could not be made, by name. A second attempt would find the id of the
  // first, which some members may still be using.
  std::map<std::string, std::string> failures;
};

// Never destroyed: NCCL's communicators end with the process.
Cache& TheCache() {
  static Cache* cache = new Cache;
  return *cache;
}

int64_t RankOf(const std::vector<int64_t>& devices, int64_t me) {
  const auto found = std::find(devices.begin(), devices.end(), me);
  if (found != devices.end()) return found - devices.begin();
  throw std::runtime_error("device " + std::to_string(me) + " is no member of its own group");
}

std::string NameOf(const std::vector<int64_t>& devices) {
  return "pccl_jax/nccl/" + std::to_string(devices.size()) + "-" +
         std::to_string(HashOf(devices, 0));
}

// Within a process the first member leaves the id where the others look for it.
std::string ExchangeHere(const std::string& name, const std::string& id, double timeout_s) {
  Cache& cache = TheCache();
  std::unique_lock<std::mutex> lock(cache.mutex);
  if (!id.empty()) {
    cache.ids[name] = id;
    cache.new_id.notify_all();
    return id;
  }
  if (!cache.new_id.wait_for(lock, Seconds(timeout_s), [&] { return cache.ids.count(name) > 0; })) {
    throw std::runtime_error("NCCL: the first device of the group has not come within " +
                             std::to_string(timeout_s) + " s (PCCL_TIMEOUT_S)");
  }
  return cache.ids[name];
}

NcclLibrary::UniqueId AgreeOnId(const World& world, const NcclLibrary& library,
                                const std::vector<int64_t>& devices, int64_t rank,
                                double timeout_s) {
  std::string id;
  if (rank == 0) {
    const NcclLibrary::UniqueId made = library.NewId();
    id.assign(made.data(), made.size());
  }
  const std::string name = NameOf(devices);
  id = world.exchange_id ? world.exchange_id(name, id) : ExchangeHere(name, id, timeout_s);
  NcclLibrary::UniqueId agreed;
  if (id.size() != agreed.size()) {
    throw std::runtime_error("NCCL: got a unique id of " + std::to_string(id.size()) +
                             " bytes, expected " + std::to_string(agreed.size()));
  }
  std::memcpy(agreed.data(), id.data(), id.size());
  return agreed;
}

// NCCL waits for the members without an end: so a thread does, and is left behind where they do not
// come.
NcclLibrary::Comm InitWithin(const NcclLibrary& library, int size, const NcclLibrary::UniqueId& id,
                             int rank, double timeout_s) {
  struct Start {
    std::mutex mutex;
    std::condition_variable ended;
    bool done = false;
    std::string error;
    NcclLibrary::Comm comm = nullptr;
  };
  const auto start = std::make_shared<Start>();
  const int device = CurrentDevice();
  StartThread("pccl-nccl-init", [=, &library] {
    std::string error;
    NcclLibrary::Comm comm = nullptr;
    try {
      SetDevice(device);
      comm = library.Init(size, id, rank);
    } catch (const std::exception& e) {
      error = e.what();
    }
    std::lock_guard<std::mutex> lock(start->mutex);
    start->error = error;
    start->comm = comm;
    start->done = true;
    start->ended.notify_all();
  });
  std::unique_lock<std::mutex> lock(start->mutex);
  if (!start->ended.wait_for(lock, Seconds(timeout_s), [&] { return start->done; })) {
    throw std::runtime_error("NCCL: a communicator of " + std::to_string(size) +
                             " devices has waited " + std::to_string(timeout_s) +
                             " s for its members. Do all processes run the same program? If the "
                             "missing one is only slow, raise PCCL_TIMEOUT_S.");
  }
  if (!start->error.empty()) throw std::runtime_error(start->error);
  return start->comm;
}

NcclLibrary::Comm MeetOnce(const World& world, const NcclLibrary& library,
                           const std::vector<int64_t>& devices, int64_t rank, double timeout_s) {
  const std::string name = NameOf(devices) + " of " + std::to_string(rank);
  Cache& cache = TheCache();
  {
    std::lock_guard<std::mutex> lock(cache.mutex);
    const auto failed = cache.failures.find(name);
    if (failed != cache.failures.end()) {
      throw std::runtime_error(
          "an earlier collective of these devices has failed, start the program "
          "anew: " +
          failed->second);
    }
  }
  try {
    const auto id = AgreeOnId(world, library, devices, rank, timeout_s);
    return InitWithin(library, static_cast<int>(devices.size()), id, static_cast<int>(rank),
                      timeout_s);
  } catch (const std::exception& e) {
    std::lock_guard<std::mutex> lock(cache.mutex);
    cache.failures[name] = e.what();
    throw;
  }
}

std::shared_ptr<Communicator> ConnectNccl(const World& world, const std::vector<int64_t>& devices,
                                          int64_t rank, double timeout_s) {
  std::string why;
  const NcclLibrary* library = NcclLibrary::Find(world.nccl_file, &why);
  if (library == nullptr) throw std::runtime_error(why);
  std::vector<int> order(devices.size());
  std::iota(order.begin(), order.end(), 0);
  return std::make_shared<NcclCommunicator>(*library,
                                            MeetOnce(world, *library, devices, rank, timeout_s),
                                            NcclCommunicator::Owner::kUs, rank, std::move(order));
}

std::shared_ptr<Communicator> ConnectMpi(const World& world, const std::vector<int64_t>& devices,
                                         int64_t rank, double timeout_s) {
  MpiSettings settings;
  settings.mpi = world.mpi.get();
  settings.comm = world.comm;
  settings.devices = world.MostDevices();
  settings.gpu_aware = world.gpu_aware;
  settings.timeout_s = timeout_s;
  settings.title = "GPUs over MPI";
  std::vector<MpiPeer> peers;
  for (const int64_t device : devices) {
    const auto owner = world.owner_of.find(device);
    if (owner == world.owner_of.end()) {
      throw std::runtime_error("device " + std::to_string(device) +
                               " was not there when the program joined MPI");
    }
    const auto process = static_cast<size_t>(owner->second.process);
    peers.push_back({static_cast<int>(world.mpi_rank.at(process)), owner->second.index});
  }
  return std::make_shared<MpiCommunicator>(settings, rank, std::move(peers));
}

}  // namespace

std::shared_ptr<Communicator> Connect(const std::shared_ptr<const World>& world, Way way,
                                      const std::vector<int64_t>& devices, int64_t me,
                                      double timeout_s) {
  Cache& cache = TheCache();
  const Key key{way, devices, me};
  {
    std::lock_guard<std::mutex> lock(cache.mutex);
    const auto found = cache.communicators.find(key);
    if (found != cache.communicators.end()) return found->second;
  }
  const int64_t rank = RankOf(devices, me);
  const auto made = way == Way::kNccl ? ConnectNccl(*world, devices, rank, timeout_s)
                                      : ConnectMpi(*world, devices, rank, timeout_s);
  std::lock_guard<std::mutex> lock(cache.mutex);
  return cache.communicators.emplace(key, made).first->second;
}

}  // namespace pccl::gpu
