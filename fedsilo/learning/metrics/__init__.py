"""What a job may score its model by besides accuracy and loss: `spec.evaluation.metrics`."""
