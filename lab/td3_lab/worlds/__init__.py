"""Thousands of worlds on one GPU: Gymnasium's MuJoCo tasks on MuJoCo Warp, and a fast TD3 that learns from them."""
