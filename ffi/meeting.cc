#include "ffi/meeting.h"

#include <cstdio>
#include <map>
#include <tuple>
#include <utility>

#include "kernels/copy.h"

namespace pccl {
namespace {

std::string Seconds(double s) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g s", s);
  return text;
}

}  // namespace

Meeting::Meeting(const CallSite& site, int64_t group)
    : site_(site),
      group_(group),
      present_(static_cast<size_t>(site.ranks())),
      buffers_(static_cast<size_t>(site.ranks())) {}

std::string Meeting::Attend(const Arrival& arrival) {
  Lock lock(mutex_);
  const auto rank = static_cast<size_t>(arrival.rank);
  if (state_ == State::kFailed) return error_;
  if (present_[rank]) {
    Fail(Title() + ": rank " + std::to_string(rank) + " came twice. This is a bug of pccl_jax.");
    return error_;
  }
  if (arrived_ == 0) first_ = arrival;
  if (arrival.in_bytes != first_.in_bytes || arrival.dtype != first_.dtype) {
    Fail(Title() + ": rank " + std::to_string(rank) + " passes " +
         std::to_string(arrival.in_bytes) + " bytes, rank " + std::to_string(first_.rank) + " " +
         std::to_string(first_.in_bytes) + ". Every rank must pass the same shape and dtype.");
    return error_;
  }
  present_[rank] = true;
  buffers_[rank] = arrival.buffers;
  if (++arrived_ == present_.size()) {
    Start(lock);
  } else {
    WaitForOthers(lock, arrival.rank);
  }
  return error_;
}

// Called by the last rank to arrive.
void Meeting::Start(Lock& lock) {
  Geometry geometry;
  const std::string error =
      Geometry::Make(site_.collective, site_.ranks(), site_.rows, first_.in_bytes, first_.out_bytes,
                     first_.item_bytes, &geometry);
  if (!error.empty()) return Fail(Title() + ": " + error);
  for (const RankBuffers& buffers : buffers_) PrepareOutput(buffers.out, first_.out_bytes);
  execution_ = std::make_unique<Execution>(site_, geometry, first_.dtype, group_, buffers_);
  helpers_wanted_ = execution_->useful_workers() - 1;
  state_ = helpers_wanted_ > 0 ? State::kSharing : State::kRunning;
  lock.unlock();
  for (int i = 0; i < helpers_wanted_; ++i) changed_.notify_one();
  execution_->Work(0);
  lock.lock();
  Finish(lock);
}

// Called by every worker; the first one tells the others.
void Meeting::Finish(Lock& lock) {
  if (state_ != State::kRunning && state_ != State::kSharing) return;
  state_ = State::kComplete;
  lock.unlock();
  changed_.notify_all();
  lock.lock();
}

// Sleeps rather than spins: measured with two ranks on two cores, a spinning rank takes the core
// that its peer needs as soon as anything else runs on the machine.
void Meeting::WaitForOthers(Lock& lock, int64_t rank) {
  const auto since = Clock::now();
  for (;;) {
    switch (state_) {
      case State::kGathering: {
        WarnOrGiveUp(rank, since);
        const auto patience = warned_ ? site_.patience.timeout : site_.patience.warn;
        const auto until = since + std::chrono::duration_cast<Clock::duration>(patience);
        if (state_ == State::kGathering) changed_.wait_until(lock, until);
        break;
      }
      case State::kSharing:
        if (helpers_ < helpers_wanted_) {
          const int worker = ++helpers_;
          lock.unlock();
          execution_->Work(worker);
          lock.lock();
          Finish(lock);
        } else {
          changed_.wait(lock);
        }
        break;
      case State::kRunning:
        changed_.wait(lock);
        break;
      case State::kComplete:
      case State::kFailed:
        return;
    }
  }
}

void Meeting::Fail(std::string error) {
  error_ = std::move(error);
  state_ = State::kFailed;
  changed_.notify_all();
}

void Meeting::WarnOrGiveUp(int64_t rank, Clock::time_point since) {
  const std::chrono::duration<double> waited = Clock::now() - since;
  const bool give_up = waited >= site_.patience.timeout;
  if (!give_up && (warned_ || waited < site_.patience.warn)) return;
  std::string text = Title() + ": rank " + std::to_string(rank) + " has waited " +
                     Seconds(waited.count()) + ". Here: ranks " + Ranks(true) +
                     ". Not come: ranks " + Ranks(false) + ".";
  if (give_up) {
    return Fail(text +
                " Does every device of the axis reach this call? A collective inside lax.cond or "
                "lax.while_loop must be reached by all or none. If the missing ranks are only "
                "slow, raise PCCL_TIMEOUT_S.");
  }
  warned_ = true;
  text += " Still waiting (until PCCL_TIMEOUT_S=" + Seconds(site_.patience.timeout.count()) + ").";
  std::fprintf(stderr, "pccl_jax: %s\n", text.c_str());
}

std::string Meeting::Title() const {
  return site_.label + " (" + std::to_string(first_.in_bytes) + " bytes a rank, algorithm " +
         site_.algorithm + ", " + std::to_string(site_.ranks()) + " ranks)";
}

// Named by their place on the axis, with the device where the two differ.
std::string Meeting::Ranks(bool present) const {
  std::string text;
  for (size_t r = 0; r < present_.size(); ++r) {
    if (present_[r] != present) continue;
    const int64_t place = site_.group_places(group_)[r], device = site_.group_members(group_)[r];
    text += (text.empty() ? "" : ", ") + std::to_string(place);
    if (place != device) text += " (device " + std::to_string(device) + " of the mesh)";
  }
  return text.empty() ? "none" : text;
}

namespace {

using Key = std::tuple<int64_t, const CallSite*, int64_t>;

struct Entry {
  std::shared_ptr<Meeting> meeting;
  int64_t to_come;
};

struct Meetings {
  std::mutex mutex;
  std::map<Key, Entry> open;
};

// Never destroyed: XLA's threads may outlive static destruction.
Meetings& OpenMeetings() {
  static Meetings* meetings = new Meetings;
  return *meetings;
}

}  // namespace

std::string MeetPeers(int64_t run_id, const CallSite& site, int64_t group, const Arrival& arrival) {
  std::shared_ptr<Meeting> meeting;
  {
    Meetings& meetings = OpenMeetings();
    std::lock_guard<std::mutex> lock(meetings.mutex);
    const auto [it, is_new] = meetings.open.try_emplace({run_id, &site, group});
    if (is_new) it->second = {std::make_shared<Meeting>(site, group), site.ranks()};
    meeting = it->second.meeting;
    if (--it->second.to_come == 0) meetings.open.erase(it);
  }
  return meeting->Attend(arrival);
}

}  // namespace pccl
