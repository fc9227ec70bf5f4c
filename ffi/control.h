// Small messages between processes beside the data: what is agreed on, waited for and given up.
#ifndef PCCL_FFI_CONTROL_H_
#define PCCL_FFI_CONTROL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ffi/shared/board.h"
#include "ffi/world.h"

namespace pccl {

// A hello is answered with a verdict, but in an ordered world, where it goes to a neighbour.
// kWaiting says what a process has been waiting for long, or with an empty text that it no longer
// is; kFarewell that it takes part in nothing any more, and why; kRevoke that the world must not be
// used any more.
enum class ControlKind : int32_t { kHello = 1, kVerdict, kAbort, kWaiting, kFarewell, kRevoke };

struct ControlMessage {
  uint64_t key = 0;
  int64_t source = 0;  // process
  ControlKind kind = ControlKind::kHello;
  int32_t tag = -1;        // of a verdict: the first data tag, or -1 for disagreement
  uint64_t signature = 0;  // of a hello
  uint64_t free_tags = 0;  // of a hello: bit i, whether candidate i is unused here
  char text[kDescription] = {};
};

// What a world keeps of its messages.
std::shared_ptr<Mail> MakeMail();

void SetText(ControlMessage* message, const std::string& text);
// Sends without waiting. Throws std::runtime_error where MPI fails.
void SendControl(const World& world, int64_t process, const ControlMessage& message);
// Sends a text to those of the processes that are others.
void SendText(const World& world, const std::vector<int64_t>& processes, ControlKind kind,
              uint64_t key, const std::string& text);
// Receives whatever has come. Messages wait, by key, until somebody takes them. Returns at once
// where another thread is receiving, unless it `must`.
void PollControl(const World& world, bool must = false);
// Takes a message of this key and kind, if one has come.
bool TakeControl(const World& world, uint64_t key, ControlKind kind, ControlMessage* message);
// Whether another process can take part, as far as it or the kernel has told us.
Health PeerHealth(const World& world, int64_t process);
// What another process is doing or what keeps it, for people: ", which is stopped".
std::string PeerNews(const World& world, int64_t process);

// From now on, answers every hello with this key by this error.
void RefuseHellos(const World& world, uint64_t key, const std::string& error);
// Says, here and to the other processes, that an ordered world is not to be used any more: after a
// failure nobody knows which call of one process belongs to which of another.
void Revoke(const World& world, const std::string& why);
// Why the world is not to be used any more, or "".
std::string Revoked(const World& world);

}  // namespace pccl

#endif  // PCCL_FFI_CONTROL_H_
