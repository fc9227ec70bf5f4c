#include "ffi/meeting.h"

#include <condition_variable>
#include <cstdio>
#include <exception>
#include <map>
#include <thread>
#include <tuple>
#include <utility>

#include "ffi/control.h"
#include "ffi/pool.h"
#include "ffi/threads.h"
#include "kernels/copy.h"

namespace pccl {
namespace {

// How long a thread of XLA's may poll for other processes before the pool takes over: longer than
// a small collective takes, so that it need not change threads.
constexpr double kInlineBudget_s = 200e-6;

std::string Seconds(double s) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g s", s);
  return text;
}

}  // namespace

Meeting::Meeting(const CallSite& site, int64_t group, uint64_t occasion)
    : site_(site),
      group_(group),
      occasion_(occasion),
      present_(static_cast<size_t>(site.ranks())),
      buffers_(static_cast<size_t>(site.ranks())) {}

void Meeting::Attend(Arrival arrival) {
  Lock lock(mutex_);
  if (state_ == State::kOver) {
    const std::string error = error_;
    lock.unlock();
    return arrival.done(error);
  }
  const auto rank = static_cast<size_t>(arrival.rank);
  const std::string mismatch = Mismatch(arrival);
  dones_.push_back(std::move(arrival.done));
  if (arrived_ == 0) first_ = arrival;
  present_[rank] = true;
  buffers_[rank] = arrival.buffers;
  ++arrived_;
  if (!mismatch.empty()) return End(lock, mismatch);
  if (arrived_ == site_.team(group_).mine.size()) Start(lock);
}

std::string Meeting::Mismatch(const Arrival& arrival) const {
  const std::string rank = "rank " + std::to_string(arrival.rank);
  if (present_[static_cast<size_t>(arrival.rank)]) {
    return Title() + ": " + rank + " came twice. This is a bug of pccl_jax.";
  }
  if (arrived_ == 0 || (arrival.in_bytes == first_.in_bytes && arrival.dtype == first_.dtype)) {
    return "";
  }
  return Title() + ": " + rank + " passes " + std::to_string(arrival.in_bytes) + " bytes, rank " +
         std::to_string(first_.rank) + " " + std::to_string(first_.in_bytes) +
         ". Every rank must pass the same shape and dtype.";
}

// Called when the last rank of this process has come.
void Meeting::Start(Lock& lock) {
  const std::string revoked = site_.ordered() ? Revoked(*site_.world) : "";
  if (!revoked.empty()) return End(lock, Title() + ": " + revoked);
  Geometry geometry;
  const std::string error =
      Geometry::Make(site_.collective, site_.ranks(), site_.rows, first_.in_bytes, first_.out_bytes,
                     first_.item_bytes, &geometry);
  if (!error.empty()) return End(lock, Title() + ": " + error);
  try {
    for (const int64_t rank : site_.team(group_).mine) {
      PrepareOutput(buffers_[static_cast<size_t>(rank)].out, first_.out_bytes);
    }
    execution_ = std::make_unique<Execution>(
        Execution::Setup{&site_, geometry, first_.dtype, group_, occasion_, Title(), buffers_});
  } catch (const std::exception& e) {
    return End(lock, Title() + ": " + e.what());
  }
  state_ = State::kRunning;
  const int workers = execution_->useful_workers();
  for (int worker = 1; worker < workers; ++worker) WorkInPool(worker);
  Work(lock, 0, [](double waited_s) { return waited_s > kInlineBudget_s; });
}

// Whoever has waited in vain goes to the end of the queue: any number of collectives that wait
// share few threads.
void Meeting::WorkInPool(int worker) {
  RunInPool([self = shared_from_this(), worker] {
    Lock lock(self->mutex_);
    const auto leave = [](double) { return PoolHasTasks(); };
    if (self->state_ == State::kRunning) self->Work(lock, worker, leave);
  });
}

// The last worker out of an execution that has failed may say so: until then its buffers are in
// use.
void Meeting::Work(Lock& lock, int worker, const Execution::Leave& leave) {
  ++working_;
  lock.unlock();
  const Execution::Outcome outcome = execution_->Work(worker, leave);
  lock.lock();
  --working_;
  if (state_ == State::kOver) return;
  if (outcome == Execution::Outcome::kComplete) return End(lock, "");
  if (outcome == Execution::Outcome::kWaits) return WorkInPool(worker);
  if (working_ > 0) return;
  execution_->Abandon();
  End(lock, execution_->error());
}

// The caller's own rank, the last to arrive, is told first and on this thread: it is not waiting
// yet. The others go on with their programs, so each needs a thread.
void Meeting::End(Lock& lock, const std::string& error) {
  if (!error.empty() && site_.ordered()) Revoke(*site_.world, error);
  error_ = error;
  state_ = State::kOver;
  std::vector<Done> dones = std::move(dones_);
  dones_.clear();
  lock.unlock();
  for (size_t i = 0; i + 1 < dones.size(); ++i) {
    RunInPool([done = std::move(dones[i]), error] { RunBlocking([&] { done(error); }); });
  }
  if (!dones.empty()) RunBlocking([&] { dones.back()(error); });
  lock.lock();
}

void Meeting::GiveUp(const std::string& error) {
  Lock lock(mutex_);
  if (state_ == State::kGathering) End(lock, error);
}

bool Meeting::Check() {
  Lock lock(mutex_);
  if (state_ != State::kGathering) return false;
  const std::chrono::duration<double> waited = Clock::now() - since_;
  const bool give_up = waited >= site_.patience.timeout;
  if (!give_up && (warned_ || waited < site_.patience.warn)) return true;
  std::string text = Title() + ": ranks " + Ranks(true) + " have waited " +
                     Seconds(waited.count()) + ". Not come: ranks " + Ranks(false) + ".";
  if (give_up) {
    text +=
        " Does every device of the axis reach this call? A collective inside lax.cond or "
        "lax.while_loop must be reached by all or none. If the missing ranks are only slow, raise "
        "PCCL_TIMEOUT_S.";
    RunInPool([self = shared_from_this(), text] { self->GiveUp(text); });
    return true;
  }
  warned_ = true;
  text += " Still waiting (until PCCL_TIMEOUT_S=" + Seconds(site_.patience.timeout.count()) + ").";
  std::fprintf(stderr, "pccl_jax: %s\n", text.c_str());
  return true;
}

std::string Meeting::Title() const {
  return site_.label + " (" + std::to_string(first_.in_bytes) + " bytes a rank, algorithm " +
         site_.algorithm + ", " + std::to_string(site_.ranks()) + " ranks)";
}

// Named by their place on the axis, with the device where the two differ.
std::string Meeting::Ranks(bool present) const {
  std::string text;
  for (const int64_t rank : site_.team(group_).mine) {
    const auto r = static_cast<size_t>(rank);
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
  int64_t to_come = 0;
};

// The meetings that somebody may still come to, and a thread that looks after them.
class Meetings {
 public:
  Meetings() {
    StartThread("pccl-meetings", [this] { Watch(); });
  }

  std::shared_ptr<Meeting> Join(int64_t run_id, const CallSite& site, int64_t group) {
    std::unique_lock<std::mutex> lock(mutex_);
    const Key key{run_id, &site, group};
    if (refused_.count(key) != 0) return nullptr;
    const auto [it, is_new] = open_.try_emplace(key);
    if (is_new) {
      it->second.meeting = std::make_shared<Meeting>(site, group, site.NextOccasion(group));
      it->second.to_come = static_cast<int64_t>(site.team(group).mine.size());
    }
    std::shared_ptr<Meeting> meeting = it->second.meeting;
    if (--it->second.to_come == 0) {
      open_.erase(it);
    } else if (!watching_) {
      watching_ = true;
      lock.unlock();
      opened_.notify_one();
    }
    return meeting;
  }

  // Returns false where it has been refused before. `meeting` is the one some ranks wait in, if
  // any.
  bool Refuse(int64_t run_id, const CallSite& site, int64_t group, const std::string& error,
              std::shared_ptr<Meeting>* meeting, uint64_t* occasion) {
    std::lock_guard<std::mutex> lock(mutex_);
    const Key key{run_id, &site, group};
    if (refused_.size() > kRemembered) refused_.clear();
    if (!refused_.emplace(key, error).second) return false;
    const auto it = open_.find(key);
    if (it != open_.end()) {
      *meeting = it->second.meeting;
      open_.erase(it);
    }
    *occasion = *meeting ? (*meeting)->occasion() : site.NextOccasion(group);
    return true;
  }

  std::string Refusal(int64_t run_id, const CallSite& site, int64_t group) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto it = refused_.find({run_id, &site, group});
    return it == refused_.end() ? "this collective has been refused" : it->second;
  }

 private:
  static constexpr size_t kRemembered = 1000;

  void Watch() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      opened_.wait(lock, [this] { return watching_; });
      std::vector<std::shared_ptr<Meeting>> gathering;
      for (const auto& [key, entry] : open_) gathering.push_back(entry.meeting);
      watching_ = !gathering.empty();
      lock.unlock();
      bool any = false;
      for (const auto& meeting : gathering) any |= meeting->Check();
      gathering.clear();
      std::this_thread::sleep_for(std::chrono::milliseconds(any ? 100 : 1));
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable opened_;
  std::map<Key, Entry> open_;
  std::map<Key, std::string> refused_;
  bool watching_ = false;
};

Meetings& TheMeetings() {
  static Meetings* meetings = new Meetings;  // never destroyed: its thread never ends
  return *meetings;
}

}  // namespace

void MeetPeers(int64_t run_id, const CallSite& site, int64_t group, Arrival arrival) {
  const std::shared_ptr<Meeting> meeting = TheMeetings().Join(run_id, site, group);
  if (meeting) return meeting->Attend(std::move(arrival));
  arrival.done(TheMeetings().Refusal(run_id, site, group));
}

void RefuseMeeting(int64_t run_id, const CallSite& site, int64_t group, const std::string& error) {
  std::shared_ptr<Meeting> meeting;
  uint64_t occasion = 0;
  if (!TheMeetings().Refuse(run_id, site, group, error, &meeting, &occasion)) return;
  if (site.world != nullptr) {
    SendText(*site.world, site.team(group).processes, ControlKind::kAbort, occasion, error);
  }
  if (meeting) RunInPool([meeting, error] { meeting->GiveUp(error); });
}

}  // namespace pccl
