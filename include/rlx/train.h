// Training as programs.
//
//   Graph loss = trace("loss", [](Tracer& t) {
//     auto x = t.input("x", {32, 784}), y = t.input("y", {32}, DType::I32);
//     return cross_entropy(linear(x, t.param("w", {784, 10}), t.param("b", {10})), y);
//   });
//   Init init(42);
//   TrainStep step = train_step(
//       loss, {{"w", init.kaiming_normal("w", {784, 10})}, {"b", init.zeros({10})}},
//       {.optimizer = adamw({.rate = constant_rate(1e-3)}), .clip_norm = 1.0});
//   CompiledGraph f = Session("cpu").compile(step.graph);
//   f.set_params(step.state);
//   double loss = f.run({{"x", x}, {"y", y}})[0].get_float(0);   // updates the parameters in place
//
// A step is one program: forward, backward, clipping, schedule and optimiser are compiled and fused
// together. Its state (moments, step counter) lies in parameters of that program, so saving
// f.params() saves everything.
#pragma once

#include "rlx/train/force_energy.h"
#include "rlx/train/functions.h"
#include "rlx/train/init.h"
#include "rlx/train/optimizer.h"
#include "rlx/train/schedule.h"
#include "rlx/train/train_step.h"
