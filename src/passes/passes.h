// The passes, one per file, and the pipelines made of them.
#pragma once

#include "rlx/passes/pass.h"

namespace rlx {

namespace pass {
extern const Pass simplify;   // local identities to a fixed point
extern const Pass recognise;  // definitions that are written out become the ops they define
// Values as i8 codes and back (insert_q_dq.h), fake quantisation once (quant_propagate.h), and integer products.
extern const Pass insert_q_dq, quant_propagate, fuse_quantised;
extern const Pass canonicalise;      // the forms that fusion and kernel choice expect
extern const Pass fold_scales;       // scales and shifts behind convolutions go into their weights
extern const Pass channels_last;     // convolutions with channels behind the pixels
extern const Pass cse;               // equal expressions once
extern const Pass fold_constants;    // nodes of constants become constants
extern const Pass hoist_invariants;  // what no step changes leaves loops
extern const Pass dead_code;         // what nobody needs goes
extern const Pass join_products;     // products of one value with several weights become one
extern const Pass lower_blocks;      // HIR to MIR: blocks become their definitions
extern const Pass decompose;         // every composite becomes its definition
extern const Pass legalise;          // composites without a kernel become their definitions
// Products in 16 bits; auto_mixed_precision.h.
extern const Pass auto_mixed_precision;
extern const Pass rematerialise;  // late reads compute again: a budget of bytes
extern const Pass fuse_regions;   // nodes that run as one kernel become regions
// The transforms, with arguments.
extern const Pass grad, value_and_grad, jvp, vmap, jacfwd, jacrev, hessian, jet, linear_transpose;
}  // namespace pass

// The rules behind simplify, recognise, fuse_quantised, canonicalise and fold_scales, for documentation and tests.
const RuleSet& simplify_rules();
const RuleSet& recognise_rules();
const RuleSet& fuse_quantised_rules();
const RuleSet& canonicalise_rules();
const RuleSet& fold_scales_rules();

// Replaces the composites that `keeps` does not want by their definitions, until none is left.
Graph decompose_composites(Graph g, std::string_view pass,
                           FunctionRef<bool(const Node&, const Graph&)> keeps);

// The program with what it writes out recognised, for those who differentiate it: gradients of the ops have kernels and
// are better conditioned than those of their definitions. One in which nothing is recognised is left as it was written;
// all its leaves, outputs and updates stay.
Graph recognised(const Graph& g);

// What every program passes through between the front end and fusion. See pipeline.cc for the
// reasons.
const Pipeline& default_pipeline();

}  // namespace rlx
