#include "ffi/transport/mpi.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <utility>

#include "ffi/progress.h"

namespace pccl {

MpiTransport::MpiTransport(const World& world, const Team& team, int first_tag)
    : world_(world),
      team_(team),
      first_tag_(first_tag),
      sending_(team.process_of.size()),
      incoming_(team.process_of.size()),
      sender_to_(team.process_of.size()),
      receiver_from_(team.process_of.size()) {
  for (auto& rank : sender_to_) rank.store(-1, std::memory_order_relaxed);
  for (auto& rank : receiver_from_) rank.store(-1, std::memory_order_relaxed);
}

MpiTransport::~MpiTransport() {
  NoteMessages();
  Cancel();
}

// Sender and receiver both count: two ranks of a process may wait for different rounds of the
// same peer at once.
int MpiTransport::Tag(const Message& message) const {
  const int64_t pair = team_.local_index[static_cast<size_t>(message.sender)] * team_.width +
                       team_.local_index[static_cast<size_t>(message.receiver)];
  return first_tag_ + static_cast<int>(pair);
}

int MpiTransport::Peer(int64_t rank) const {
  const auto process = static_cast<size_t>(team_.process_of[static_cast<size_t>(rank)]);
  return static_cast<int>(world_.mpi_rank[process]);
}

void MpiTransport::Send(const Message& message, const ByteStream& bytes) {
  const auto sender = static_cast<size_t>(message.sender);
  std::vector<Segment>& sending = sending_[sender];
  receiver_from_[sender].store(message.receiver, std::memory_order_relaxed);
  for (size_t begin = 0; begin < bytes.nbytes(); begin += kSegmentBytes) {
    Segment segment;
    segment.begin = begin;
    segment.end = std::min(bytes.nbytes(), begin + kSegmentBytes);
    const char* data = bytes.Contiguous(segment.begin, segment.end);
    if (data == nullptr) {
      segment.staged = Scratch(segment.end - segment.begin);
      bytes.ForRuns(segment.begin, segment.end, [&](const ByteStream::Run& run, size_t offset) {
        std::memcpy(segment.staged.data() + offset, bytes.at(run), run.nbytes);
      });
      data = segment.staged.data();
    }
    segment.request = world_.mpi->Isend(data, segment.end - segment.begin, Peer(message.receiver),
                                        Tag(message), world_.comm);
    sending.push_back(std::move(segment));
  }
}

bool MpiTransport::Sent(int64_t rank, int64_t) {
  std::vector<Segment>& sending = sending_[static_cast<size_t>(rank)];
  while (!sending.empty() && world_.mpi->Test(&sending.back().request)) sending.pop_back();
  if (!sending.empty()) return false;
  receiver_from_[static_cast<size_t>(rank)].store(-1, std::memory_order_relaxed);
  return true;
}

void MpiTransport::PostReceives(const Message& message, const Sink& sink, Incoming* incoming) {
  *incoming = Incoming();
  incoming->round = message.round;
  sender_to_[static_cast<size_t>(message.receiver)].store(message.sender,
                                                          std::memory_order_relaxed);
  for (size_t begin = 0; begin < sink.nbytes; begin += kSegmentBytes) {
    Segment segment;
    segment.begin = begin;
    segment.end = std::min(sink.nbytes, begin + kSegmentBytes);
    char* data = sink.place(segment.begin, segment.end);
    if (data == nullptr) {
      segment.staged = Scratch(segment.end - segment.begin);
      data = segment.staged.data();
    }
    segment.request = world_.mpi->Irecv(data, segment.end - segment.begin, Peer(message.sender),
                                        Tag(message), world_.comm);
    incoming->segments.push_back(std::move(segment));
  }
}

Delivery MpiTransport::Receive(const Message& message, const Sink& sink) {
  Incoming& incoming = incoming_[static_cast<size_t>(message.receiver)];
  if (incoming.round != message.round) PostReceives(message, sink, &incoming);
  Delivery delivery = Delivery::kNothing;
  while (incoming.taken < incoming.segments.size()) {
    Segment& segment = incoming.segments[incoming.taken];
    if (!world_.mpi->Test(&segment.request)) return delivery;
    if (segment.staged.data() != nullptr) {
      sink.take(segment.begin, segment.end, segment.staged.data());
      segment.staged = Scratch();
    }
    ++incoming.taken;
    delivery = Delivery::kSome;
  }
  sender_to_[static_cast<size_t>(message.receiver)].store(-1, std::memory_order_relaxed);
  return Delivery::kAll;
}

void MpiTransport::Cancel() {
  if (ProgressHasStopped()) return;
  for (Incoming& incoming : incoming_) {
    if (incoming.taken < incoming.segments.size()) CancelReceives(&incoming);
    incoming = Incoming();
  }
  // A send cannot be taken back. Staged copies are kept alive for it, for good.
  for (std::vector<Segment>& sending : sending_) {
    for (Segment& segment : sending) new Scratch(std::move(segment.staged));
    sending.clear();
  }
}

// A message that a stopped process was sending would keep us for ever: then its buffer is given
// up as lost, which only a program that goes on after the error could notice.
void MpiTransport::CancelReceives(Incoming* incoming) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point until = Clock::now() + std::chrono::seconds(1);
  for (size_t i = incoming->taken; i < incoming->segments.size(); ++i) {
    Segment& segment = incoming->segments[i];
    try {
      world_.mpi->CancelReceive(&segment.request);
      while (!world_.mpi->Test(&segment.request)) {
        if (Clock::now() < until) continue;
        new Scratch(std::move(segment.staged));
        break;
      }
    } catch (const std::exception&) {
      // The library is already failing; the error that led here is the one to report.
    }
  }
}

std::vector<int64_t> MpiTransport::Awaited() const {
  std::vector<int64_t> awaited;
  for (const auto* list : {&sender_to_, &receiver_from_}) {
    for (const std::atomic<int64_t>& rank : *list) {
      const int64_t peer = rank.load(std::memory_order_relaxed);
      if (peer >= 0) awaited.push_back(peer);
    }
  }
  return awaited;
}

}  // namespace pccl
