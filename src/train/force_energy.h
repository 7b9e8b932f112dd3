// The loss of an interatomic potential: forces and energies at once.
//
//   Graph loss = build_force_energy_loss(energy, {"positions"}, {"forces"}, "energy");
//   TrainStep step = train_step(loss, params, options);        // second derivatives of the network
//
// loss = force * mean((-dE/dpositions - forces)^2) + energy * mean((E - reference)^2)
#pragma once

#include "rlx/ir/builder.h"

namespace rlx {

struct ForceEnergyLossWeights {
  double force = 1, energy = 1;
  // An input per positions that weighs their atoms, or masks them: of the positions' shape without the
  // last axis and of their dtype, the mean is then over what it counts. Empty: all atoms count once.
  std::vector<std::string> atoms = {};
};

// Output 0 of `energy` is E: a real scalar, [1], or the energies [B] of a batch. New inputs:
// forces[i] of the type of positions[i], and energy_ref of E's type. All leaves and updates of the energy stay; one
// scalar output, named <name>_mlip_loss. Raises "no-leaf", "wrt-dtype", "output-index", "energy-type", "force-names"
// (numbers of names that differ), "leaf-name" for a name that is taken, and what reverse.h raises.
Graph build_force_energy_loss(const Graph& energy, const std::vector<std::string>& positions,
                              const std::vector<std::string>& forces, const std::string& energy_ref,
                              const ForceEnergyLossWeights& weights = {});

}  // namespace rlx
