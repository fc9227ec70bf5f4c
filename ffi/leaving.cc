#include "ffi/leaving.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <thread>

#include "ffi/call_site.h"
#include "ffi/control.h"
#include "ffi/environment.h"
#include "ffi/threads.h"
#include "ffi/world.h"

namespace pccl {
namespace {

constexpr double kGrace_s = 10;

std::atomic<bool> failed{false};

bool SomebodyIsGone(const World& world) {
  for (const int64_t process : world.AllProcesses()) {
    if (process != world.process && PeerHealth(world, process).gone) return true;
  }
  return false;
}

void Tell(const World& world, const std::string& reason) {
  if (world.shared.Has(world.process)) SayFarewell(world.shared.Of(world.process), reason);
  try {
    SendText(world, world.AllProcesses(), ControlKind::kFarewell, 0, reason);
  } catch (const std::exception&) {
    // Those who do not hear it run into their timeout.
  }
}

}  // namespace

void NoteFailure() { failed.store(true, std::memory_order_relaxed); }

void Leave(const std::string& reason) {
  bool gone = false;
  for (const WorldPtr& world : AllWorlds()) {
    if (getpid() != world->pid) return;  // a fork of the program
    gone |= SomebodyIsGone(*world);
  }
  const bool well = reason.empty() && !failed.load(std::memory_order_relaxed);
  if (well && !gone) return;
  for (const WorldPtr& world : AllWorlds()) {
    if (!reason.empty()) Tell(*world, reason);
  }
  const double grace_s = SecondsFrom("PCCL_EXIT_S", kGrace_s);
  StartThread("pccl-leaving", [grace_s] {
    std::this_thread::sleep_for(std::chrono::duration<double>(grace_s));
    std::fprintf(stderr,
                 "pccl_jax: the other processes do not end with this one; leaving without them, "
                 "with status 1.\n");
    _exit(1);
  });
}

}  // namespace pccl
