#include "ffi/execution.h"

#include <sched.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>

#include "ffi/cores.h"

namespace pccl {
namespace {

// One core moves this much in less time than it takes to wake another thread.
constexpr size_t kBytesPerWorker = size_t{512} << 10;
// Outputs beyond this leave the cache before anyone reads them.
constexpr size_t kStreamBytes = size_t{16} << 20;
// How often a worker with nothing to do looks again at once, how long it then only lets others
// run, and how long it sleeps after that, so that the core is there for whoever it waits for.
constexpr int kPauses = 64;
constexpr double kYield_s = 2e-3;
constexpr timespec kNap{0, 50'000};

Layout MakeLayout(const CallSite& site, const Geometry& geometry, DType dtype, int64_t group) {
  Layout layout;
  layout.collective = site.collective;
  layout.split = site.schedule.split;
  layout.geometry = geometry;
  layout.places = site.group_places(group);
  layout.reduce = site.collective == Collective::kAllGather ? nullptr : FindReduce(dtype, site.op);
  const size_t out_bytes = geometry.whole_bytes() * static_cast<size_t>(site.ranks());
  layout.stream = site.collective != Collective::kReduceScatter && out_bytes > kStreamBytes &&
                  site.schedule.nodes == 1;
  return layout;
}

// Buffers beside in and out: a reduce-scatter keeps partials of chunks it will give away, a
// vector that travels whole is never reduced in place.
size_t WorkBytes(const CallSite& site, const Geometry& geometry) {
  if (site.schedule.nodes == 1 || IsVendor(site.schedule)) return 0;
  const bool partials = site.collective == Collective::kReduceScatter;
  return partials || !site.schedule.split ? geometry.whole_bytes() : 0;
}

}  // namespace

Execution::Execution(const Setup& setup)
    : schedule_(setup.site->schedule),
      world_(setup.site->world.get()),
      team_(setup.site->team(setup.group)),
      layout_(MakeLayout(*setup.site, setup.geometry, setup.dtype, setup.group)),
      patience_(setup.site->patience),
      title_(setup.title),
      scratch_(WorkBytes(*setup.site, setup.geometry) * team_.mine.size()),
      ranks_(setup.buffers.size()),
      mine_(team_.mine),
      memory_(layout_, schedule_, ranks_.data()) {
  const size_t work_bytes = WorkBytes(*setup.site, setup.geometry);
  const auto rounds = static_cast<size_t>(schedule_.rounds);
  for (size_t i = 0; i < mine_.size(); ++i) {
    const auto r = static_cast<size_t>(mine_[i]);
    RankState& rank = ranks_[r];
    rank.rank = mine_[i];
    rank.in = static_cast<char*>(const_cast<void*>(setup.buffers[r].in));  // never written
    rank.out = static_cast<char*>(setup.buffers[r].out);
    rank.work = work_bytes == 0 ? nullptr : scratch_.data() + i * work_bytes;
    rank.homes.assign(layout_.split ? ranks_.size() : rounds + 1, Home::kIn);
  }
  if (!team_.one_process()) {
    remote_ =
        std::make_unique<Remote>(*world_, team_, layout_, schedule_, ranks_.data(), setup.occasion,
                                 title_, setup.site->digest, setup.site->channel(setup.group));
  }
  if (IsVendor(schedule_)) {
    const RankBuffers& buffers = setup.buffers[static_cast<size_t>(mine_[0])];
    vendor_ = std::make_unique<VendorCollective>(
        *world_, VendorCollective::Setup{setup.site, &layout_, setup.dtype, setup.group, buffers});
  }
  for (const Phase& phase : schedule_.phases) {
    for (int64_t node = 0; phase.intra && node < schedule_.nodes; ++node) {
      const int64_t first = node * schedule_.local;
      const bool here = ranks_[static_cast<size_t>(first)].present() &&
                        !(remote_ && remote_->RunsNodePhase(phase, node));
      node_phases_.push_back(
          here ? std::make_unique<NodePhase>(layout_, schedule_, phase, ranks_.data(), first)
               : nullptr);
    }
  }
}

int Execution::useful_workers() const {
  const size_t moved = layout_.geometry.whole_bytes() * mine_.size();
  return static_cast<int>(std::min({Cores(), mine_.size(), 1 + moved / kBytesPerWorker}));
}

std::string Execution::error() const {
  std::lock_guard<std::mutex> lock(error_mutex_);
  return error_;
}

void Execution::Fail(const std::string& error) {
  std::lock_guard<std::mutex> lock(error_mutex_);
  if (error_.empty()) error_ = error;
  failed_.store(true, std::memory_order_release);
}

Execution::Outcome Execution::Work(int worker, const Leave& leave) {
  const size_t n = mine_.size();
  const size_t start = static_cast<size_t>(worker) * n / static_cast<size_t>(useful_workers());
  int pauses = 0;
  while (!complete()) {
    if (failed_.load(std::memory_order_acquire)) return Outcome::kFailed;
    bool any = false;
    for (size_t i = 0; i < n; ++i) any |= Advance(static_cast<size_t>(mine_[(start + i) % n]));
    if (any) {
      idle_since_.store(0, std::memory_order_relaxed);
      pauses = 0;
      continue;
    }
    const std::optional<double> waited = Pause(&pauses);
    if (!remote_ || !waited) continue;
    CheckOnOthers(*waited);
    if (leave(*waited)) return Outcome::kWaits;
  }
  return Confirm() ? Outcome::kComplete : Outcome::kFailed;
}

// Waits a little. Returns how long there has been nothing to do, in seconds; nothing for less than
// a worker cares to look at the clock for.
std::optional<double> Execution::Pause(int* pauses) {
  if (++*pauses < kPauses) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
    return std::nullopt;
  }
  const Clock::rep now = Clock::now().time_since_epoch().count();
  Clock::rep since = 0;
  if (idle_since_.compare_exchange_strong(since, now, std::memory_order_relaxed)) since = now;
  const double waited = std::chrono::duration<double>(Clock::duration(now - since)).count();
  if (waited < kYield_s) {
    sched_yield();
  } else {
    nanosleep(&kNap, nullptr);
  }
  return waited;
}

bool Execution::Confirm() {
  if (!remote_) return true;
  try {
    const std::string aborted = remote_->Confirm();
    if (!aborted.empty()) Fail(aborted);
    return aborted.empty();
  } catch (const std::exception& e) {
    Fail(title_ + ": " + e.what());
    return false;
  }
}

// Called by a worker that has had nothing to do for `waited` seconds.
void Execution::CheckOnOthers(double waited) {
  try {
    const std::string trouble = remote_->Trouble();
    if (!trouble.empty()) {
      const bool titled = trouble.find(title_) != std::string::npos;
      return Fail(titled ? trouble : title_ + ": " + trouble + ".");
    }
    const bool give_up = waited >= patience_.timeout.count();
    if (!give_up && waited < patience_.warn.count()) return;
    if (warned_.exchange(true) && !give_up) return;
    char seconds[32];
    std::snprintf(seconds, sizeof seconds, "%.3g s", waited);
    const std::string waits = std::string(" has waited ") + seconds + " " + WaitingFor();
    const std::string text = title_ + ": process " + std::to_string(world_->process) + waits + ".";
    if (!give_up) {
      remote_->Complain();
      std::fprintf(stderr, "pccl_jax: %s Still waiting (until PCCL_TIMEOUT_S).\n", text.c_str());
      return;
    }
    Fail(text +
         " Do all processes run the same program, and does each reach this call? If the missing "
         "ones are only slow, raise PCCL_TIMEOUT_S.");
  } catch (const std::exception& e) {
    Fail(title_ + ": " + e.what());
  }
}

std::string Execution::WaitingFor() {
  const std::string text = vendor_ ? vendor_->WaitingFor() : "";
  return text.empty() ? remote_->WaitingFor() : text;
}

void Execution::Abandon() {
  try {
    if (vendor_) vendor_->Abandon();
    if (remote_) remote_->Abandon(error());
  } catch (const std::exception&) {
    // The error that led here is the one to report.
  }
}

}  // namespace pccl
