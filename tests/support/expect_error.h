// expect_error("axis", "rank 2", [&] { op::softmax(b, x, {5}); }): f raises an Error of that code whose message has that part.
#pragma once

#include <gtest/gtest.h>

#include "rlx/base/error.h"

namespace rlx {

template <class F>
void expect_error(std::string_view code, std::string_view part, F&& f) {
  try {
    f();
    ADD_FAILURE() << "no error, expected " << code;
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    EXPECT_NE(e.message().find(part), std::string::npos) << e.what();
  }
}

}  // namespace rlx
