// A device without hardware. Its memory is the host's, and a stream does nothing until somebody
// asks how far it is: so whoever reads too early, or forgets to wait, reads what was there before.
#ifndef PCCL_TESTS_GPU_FAKE_DEVICE_H_
#define PCCL_TESTS_GPU_FAKE_DEVICE_H_

#include <functional>
#include <string>

namespace fake {

// A stream belongs to one thread.
void* NewStream();
void Enqueue(void* stream, std::function<void()> work);
// Runs what is in the stream.
void Drain(void* stream);

// What goes wrong while a stream of this thread runs; nothing runs any more after it.
void Fail(const std::string& error);
std::string Failure();
// Whether the device of the calling thread was stopped.
bool IsBroken();
// For the calling thread, which forgets its failure.
void Reset(int ordinal, bool capturing);

}  // namespace fake

#endif  // PCCL_TESTS_GPU_FAKE_DEVICE_H_
